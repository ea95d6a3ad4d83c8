package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/topicconfig"
)

// Produce: v3-13 (advertised from 0; see api.advertisedMin)
//
//   - Exactly one record batch of format 2 for each range, as Kafka has it since v3; it is checked whole (CRC32C
//     included) and stored as it came. Offsets and epoch are filled in by the node.
//   - The reader admits the batches in the order of the requests and goes on to the next request; the writer
//     waits for the acknowledgements. The request's memory is free again after the admission.
//   - acks=-1 always waits for a majority (I1), 1 for the fsync here. 0 has no answer; if something fails, the
//     connection ends, as with Kafka: that is how such a client learns of a new leader.
//   - While this node is being promoted, admission waits for it, up to Config.LeaderWait; while the range's buffers are full,
//     up to the request's own timeout. Then the range alone is refused with a retriable code.
//   - A timeout leaves the outcome unknown: REQUEST_TIMED_OUT. A retry of an idempotent producer is recognised.
//   - v10 names the leader to a client that is at the wrong node (KIP-951); v13 names topics by id.
//   - message.timestamp.type=LogAppendTime: the batch gets this node's time, and a CRC to match, before it is admitted. (The
//     answer to one that is recognised as sent before tells the present time; the records have that of the first.)
//   - A node that has not caught up with the metadata leads nothing, and knows of no topic that it is not there: it says that it does
//     not lead.
//   - A transactional id is refused.

// produceCall is one Produce between admission and answer.
type produceCall struct {
	conn     *conn
	acks     int16
	deadline time.Time
	throttle time.Duration // see quota.go
	// pending counts the parts without a result, and the admission itself. Whoever brings it to 0 touches the call no
	// more: it is the writer's, and may be used again.
	pending atomic.Int32
	parts   []*producePart
	used    int // of parts; the rest are spare
}

// producePart is one range of a Produce. Its done function is made once and lives with it.
type producePart struct {
	call  *produceCall
	topic topicRef
	index int32
	r     vtop.Range // zero if the topic is not known
	key   producerKey
	first int32 // sequence of the first record
	// appended is the time that the records got; -1 if they kept the producer's.
	appended int64
	result   vtop.AppendResult
	// state: see the constants. result is written before it leaves partWaiting.
	state atomic.Uint32
	done  func(vtop.AppendResult)
}

const (
	partWaiting uint32 = iota
	partDone
	partAbandoned // the answer left before the result: whatever comes is ignored
)

// take returns a clean call for a request.
func (c *conn) take() *produceCall {
	p, ok := c.server.calls.Get().(*produceCall)
	if !ok {
		p = new(produceCall)
	}
	p.conn, p.used = c, 0
	p.pending.Store(1)
	return p
}

// recycle keeps a call for later, unless a result may still come for it.
func (s *Server) recycle(p *produceCall) {
	if p.pending.Load() == 0 && len(p.parts) <= 64 {
		p.conn = nil
		s.calls.Put(p)
	}
}

// add makes a part, reusing a spare one.
func (p *produceCall) add(topic topicRef, index int32) *producePart {
	if p.used == len(p.parts) {
		part := &producePart{call: p}
		part.done = part.finish
		p.parts = append(p.parts, part)
	}
	part := p.parts[p.used]
	p.used++
	p.pending.Add(1)
	part.topic, part.index, part.r, part.key, part.first, part.appended = topic, index, vtop.Range{}, producerKey{}, 0, -1
	part.result = vtop.AppendResult{}
	part.state.Store(partWaiting)
	return part
}

// finish takes the result of a part; the node calls it once for each Append.
func (part *producePart) finish(result vtop.AppendResult) {
	part.result = result
	if part.state.CompareAndSwap(partWaiting, partDone) {
		part.call.drop()
	}
}

func (part *producePart) fail(err error) {
	part.finish(vtop.AppendResult{Base: -1, LogStart: -1, Err: err})
}

func (p *produceCall) drop() {
	c := p.conn // before: see pending
	if p.pending.Add(-1) == 0 {
		c.signal()
	}
}

// admitProduce decodes a Produce and admits its batches; then the request's memory is given back. The admission's own
// count in pending is dropped by enqueue.
func (c *conn) admitProduce(f *frame) error {
	if _, err := f.api.check(f.version, f.flexible, f.body); err != nil {
		return err
	}
	req := &c.produceReq
	req.Version = f.version
	if err := req.ReadFrom(f.body); err != nil {
		return errors.Join(errMalformed, err)
	}
	p := c.take()
	f.produce, p.acks, p.throttle = p, req.Acks, c.chargeProduce(f)
	wait := min(max(time.Duration(req.TimeoutMillis)*time.Millisecond, time.Millisecond), c.server.cfg.MaxTimeout)
	p.deadline = f.at.Add(wait)
	state, unready := c.server.metadata()
	a := admission{conn: c, state: state, at: f.at, leadBy: f.at.Add(min(wait, c.server.cfg.LeaderWait)), roomBy: p.deadline, acks: req.Acks, byID: f.version >= 13}
	switch {
	case req.Acks < -1 || req.Acks > 1:
		a.refuse = fmt.Errorf("%w: acks=%d: want 0, 1 or -1", errAcks, req.Acks)
	case req.TransactionID != nil:
		a.refuse = errTransactional
	case unready != nil:
		a.refuse = unready
	}
	for i := range req.Topics {
		a.topic(p, &req.Topics[i])
	}
	f.release()
	req.Topics = nil // they alias what was given back
	return nil
}

var (
	errAcks          = errors.New("invalid required acks")
	errTransactional = errors.New("transactions are not supported: leave transactional.id unset")
)

// admission carries what the parts of one Produce share.
type admission struct {
	conn           *conn
	state          *fsm.State
	at             time.Time // when the request came
	leadBy, roomBy time.Time
	acks           int16
	byID           bool  // topics are named by id
	refuse         error // for the whole request
}

func (a *admission) topic(p *produceCall, t *kmsg.ProduceRequestTopic) {
	ref := topicRef{t.Topic, t.TopicID, a.byID}
	topic, known := ref.in(a.state)
	awaited := known || a.refuse != nil || a.state.Deleted(ref.id) || !a.conn.absent.worthWait(ref, a.at)
	for !awaited && !known && time.Since(a.at) < lateTopic && a.conn.pause(latePause) {
		a.state = a.conn.server.node.State()
		topic, known = ref.in(a.state)
	}
	if !known && a.refuse == nil {
		a.conn.absent.note(ref, time.Now())
	}
	for i := range t.Partitions {
		rp := &t.Partitions[i]
		part := p.add(ref, rp.Partition)
		switch {
		case a.refuse != nil:
			part.fail(a.refuse)
		case !known || rp.Partition < 0 || rp.Partition >= topic.Ranges:
			part.fail(ref.noRange(known, rp.Partition))
		default:
			a.part(part, vtop.Range{Topic: topic.ID, Index: rp.Partition}, rp.Records, topic.Config)
		}
	}
}

// part checks one batch and admits it, waiting where that is worth it.
func (a *admission) part(part *producePart, r vtop.Range, records []byte, config map[string]string) {
	part.r = r
	b, rest, err := batch.Parse(records, topicconfig.BatchLimit(config))
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes behind the first batch: want exactly one batch", vtop.ErrUnsupportedBatch, len(rest))
	}
	if err == nil {
		err = b.Check()
	}
	if err == nil && b.HasAppendTime() {
		err = fmt.Errorf("%w: the time of the append is the leader's to tell", vtop.ErrUnsupportedBatch)
	}
	if err != nil {
		part.fail(err)
		return
	}
	if id := b.ProducerID(); id >= 0 {
		part.key, part.first = producerKey{r, id, b.ProducerEpoch()}, b.BaseSequence()
	}
	if topicconfig.AppendTime(config) {
		part.appended = time.Now().UnixMilli()
		b.SetAppendTime(part.appended)
	}
	node := a.conn.server.node
	for {
		node.Append(a.conn.ctx, r, -1, b, a.acks, part.done)
		if part.state.Load() != partDone || part.result.Err == nil || part.result.Base >= 0 || !a.waitFor(r, part.result.Err) {
			return
		}
		// Nothing was admitted (an error with a base is of a batch that was), and the part's result is this
		// goroutine's alone until the request is queued.
		part.call.pending.Add(1)
		part.state.Store(partWaiting)
	}
}

// waitFor waits until it is worth trying again after err, refused at admission; false if it is not, or not in time.
func (a *admission) waitFor(r vtop.Range, err error) bool {
	switch {
	case errors.Is(err, vtop.ErrOverloaded):
		return a.conn.waitRoom(r, a.roomBy)
	case errors.Is(err, vtop.ErrNotLeader):
		return time.Now().Before(a.leadBy) && a.conn.server.late(r, a.at) && a.conn.waitRoom(r, a.leadBy)
	case errors.Is(err, vtop.ErrNotReady):
		ctx, cancel := context.WithDeadline(a.conn.ctx, a.leadBy)
		defer cancel()
		return a.conn.server.node.WaitLeading(ctx, r) == nil
	}
	return false
}

// pause waits for d; false if the connection ends meanwhile.
func (c *conn) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return !c.server.isDraining()
	case <-c.ctx.Done():
		return false
	}
}

// waitRoom waits for the range's buffers to move. The socket is not read meanwhile: that is the answer to overload (I13).
func (c *conn) waitRoom(r vtop.Range, until time.Time) bool {
	left := time.Until(until)
	if left <= 0 || c.server.isDraining() {
		return false
	}
	wake := make(chan struct{}, 1)
	stop := c.server.node.Watch([]vtop.Range{r}, wake)
	defer stop()
	timer := time.NewTimer(min(left, roomPause))
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-c.ctx.Done():
		return false
	}
	return true
}

// roomPause is the longest wait between two attempts to admit: room can come without the visible end moving.
const roomPause = 10 * time.Millisecond

// answerProduce appends the answer to out; results that are not there yet have timed out.
func (c *conn) answerProduce(f *frame, out *buffer) error {
	p := f.produce
	resp := &c.produceResp
	resp.Version = f.version
	resp.Topics, resp.Brokers, resp.ThrottleMillis = resp.Topics[:0], nil, millisOf(p.throttle)
	failed := error(nil)
	for _, part := range p.parts[:p.used] {
		rp := c.partAnswer(part)
		f.note(rp.ErrorCode != 0)
		if f.version >= 10 {
			c.hintLeader(resp, &rp, part.r)
		}
		if rp.ErrorCode != 0 && failed == nil {
			failed = fmt.Errorf("produce to %s/%d with acks=0 refused with code %d", part.topic, part.index, rp.ErrorCode)
		}
		appendPart(resp, part.topic, rp)
	}
	if p.acks == 0 {
		return failed
	}
	return c.append(out, f, resp, f.flexible)
}

// partAnswer turns a part's result, or its absence, into the answer.
func (c *conn) partAnswer(part *producePart) kmsg.ProduceResponseTopicPartition {
	rp := kmsg.NewProduceResponseTopicPartition()
	rp.Partition, rp.BaseOffset, rp.LogStartOffset = part.index, -1, -1
	var err error
	if part.state.CompareAndSwap(partWaiting, partAbandoned) {
		err = fmt.Errorf("%w: no acknowledgement in time", vtop.ErrTimeout)
	} else {
		err = part.topic.during(c.server.node.State(), part.result.Err)
	}
	if err == nil {
		rp.BaseOffset, rp.LogStartOffset, rp.LogAppendTime = int64(part.result.Base), int64(part.result.LogStart), part.appended
		c.refusals.clear(part.key)
		return rp
	}
	rp.ErrorCode = c.refusals.code(part.key, part.first, c.server.produceCode(err), time.Now())
	rp.ErrorMessage = text(err)
	c.server.metrics.failed(keyProduce, rp.ErrorCode)
	return rp
}

// appendPart adds a part's answer; parts of one topic stand together in the request. Topics of earlier answers are
// reused.
func appendPart(resp *kmsg.ProduceResponse, topic topicRef, rp kmsg.ProduceResponseTopicPartition) {
	n := len(resp.Topics)
	if n == 0 || resp.Topics[n-1].Topic != topic.name || resp.Topics[n-1].TopicID != topic.id {
		if n < cap(resp.Topics) {
			resp.Topics = resp.Topics[:n+1]
		} else {
			resp.Topics = append(resp.Topics, kmsg.ProduceResponseTopic{})
		}
		t := &resp.Topics[n]
		t.Topic, t.TopicID, t.Partitions = topic.name, topic.id, t.Partitions[:0]
		n++
	}
	t := &resp.Topics[n-1]
	t.Partitions = append(t.Partitions, rp)
}
