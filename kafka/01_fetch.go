package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// Fetch: v4-18
//
//   - Whole batches below the high watermark, verbatim, in the order of the request. The limits of the request
//     and Config.FetchBytes hold, save that the first batch is always returned, however large.
//   - Fewer than MinBytes: the request waits for its ranges to move (Node.Watch), up to MaxWait. An error or a
//     divergence answers at once.
//   - v9 checks the client's leader epoch; v12 the epoch of what it fetched last, answered as diverging epoch (KIP-320).
//   - v13 names topics by id; v16 names the leader to a client that is at the wrong node, or under an old epoch (KIP-951).
//     What v15 and v18 added is for replicas, and is not looked at.
//   - Sessions (KIP-227) are not kept: the answer names session 0, so that clients send all their ranges each time. A request
//     that goes on with a session gets FETCH_SESSION_ID_NOT_FOUND; one that begins or ends one is a fetch like any other.
//     What costs in a fetch of many quiet ranges is the look at each of them, which a session does not save: for 1000 of
//     them it would save a third of 0.4 ms and 70 KB, for 10 three microseconds (BenchmarkFetch_QuietRanges), and would have
//     this node keep for each client what the client knows anyway.
//   - While this node is being promoted for a range and nothing else is to be told, the answer waits up to
//     Config.LeaderWait.
//   - There are no transactions: the last stable offset is the high watermark, aborted ones there are none.

// fetch is one Fetch while it is being answered.
type fetch struct {
	conn   *conn
	frame  *frame
	req    *kmsg.FetchRequest
	quota  int          // most bytes of records that the client's quota allows
	ranges []vtop.Range // of the known ranges, for Watch
	// What the last pass saw.
	bytes     int
	final     bool     // there is something to tell beyond records
	promoting bool     // a range is worth waiting for: its leader is coming, here or elsewhere
	late      bool     // one of them only because this node may not have heard yet
	missing   bool     // a topic is not there that may be in a moment
	leaders   []broker // that the answer names
}

// answerFetch runs a Fetch and writes its answer.
func (c *conn) answerFetch(f *frame) error {
	// It may park for long, and reserves nothing for its elements: they take hardly more in memory than in the request.
	if _, err := f.api.check(f.version, f.flexible, f.body); err != nil {
		return err
	}
	req, err := f.decode()
	if err != nil {
		return err
	}
	w := &fetch{conn: c, frame: f, req: req.(*kmsg.FetchRequest), quota: c.fetchLimit(f), ranges: c.fetchRanges[:0]}
	defer w.keepRanges()
	if owed := c.fetchDebt(f); owed > 0 {
		return w.throttled(owed)
	}
	out, held, err := w.wait()
	if err != nil {
		return err
	}
	c.chargeFetch(f, out)
	defer c.server.responses.release(held)
	defer c.server.pool.put(out)
	c.fetchSize = len(out.b)
	began := time.Now()
	err = c.flush(out)
	c.paceFetch(time.Since(began))
	return err
}

// keepRanges leaves the list of ranges to the connection's next fetch, unless it is a long one.
func (w *fetch) keepRanges() {
	if cap(w.ranges) <= maxKeptRanges {
		w.conn.fetchRanges = w.ranges
	}
}

const maxKeptRanges = 4096

// paceFetch makes the answers to a client smaller that takes more than a second for one: what is held for slow readers
// is held back from all others.
func (c *conn) paceFetch(took time.Duration) {
	switch {
	case took > time.Second:
		c.fetchCap = max(c.fetchCap/2, firstChunk)
	case took < time.Second/8:
		c.fetchCap = min(c.fetchCap*2, c.server.cfg.FetchBytes)
	}
}

// wait makes passes over the ranges until there is enough to answer, and returns the encoded answer and what it holds
// of the budget. Between passes it holds neither.
func (w *fetch) wait() (out *buffer, held int64, err error) {
	c, s := w.conn, w.conn.server
	deadline := w.frame.at.Add(min(time.Duration(w.req.MaxWaitMillis)*time.Millisecond, s.cfg.MaxTimeout))
	leadBy := w.frame.at.Add(s.cfg.LeaderWait)
	if w.req.SessionEpoch > 0 {
		return w.sessionRefused(), 0, nil
	}
	var watch watcher
	defer watch.stop()
	for {
		if out, held, err = w.attempt(); err != nil {
			return nil, 0, err
		}
		until := deadline
		if w.promoting && leadBy.After(until) {
			until = leadBy
		}
		missing := w.missing && w.bytes == 0
		if !missing && (w.missing || w.enough() || !time.Now().Before(until)) || s.isDraining() {
			return out, held, nil
		}
		s.pool.put(out)
		s.responses.release(held)
		if missing { // not for long, and there is nothing to watch yet
			if !c.pause(latePause) && c.ctx.Err() != nil {
				return nil, 0, context.Cause(c.ctx)
			}
			continue
		}
		if !watch.begin(s.node, w.ranges) {
			continue // something may have happened before the watch: look again
		}
		if w.late { // the refusal is final soon, whether the range moves or not
			until = time.Now().Add(2 * latePause)
		}
		if err := watch.wait(c, until, w.bytes > 0); err != nil {
			return nil, 0, err
		}
	}
}

// enough reports whether the last pass can be the answer before its time is up.
func (w *fetch) enough() bool {
	want := min(int(w.req.MinBytes), w.limit())
	return w.final || w.bytes >= want && (w.bytes > 0 || !w.promoting) || len(w.ranges) == 0
}

// limit is the most bytes of records in this answer.
func (w *fetch) limit() int { return max(min(int(w.req.MaxBytes), w.conn.fetchCap, w.quota), 0) }

// attempt encodes the answer as things are now.
func (w *fetch) attempt() (*buffer, int64, error) {
	s := w.conn.server
	held, err := s.responses.acquire(w.conn.ctx, int64(w.limit()))
	if err != nil {
		return nil, 0, context.Cause(w.conn.ctx)
	}
	out := s.pool.get(max(w.conn.fetchSize, 1<<minClass))
	w.pass(out)
	if used := int64(cap(out.b)); used < held { // give back what was not needed
		s.responses.release(held - used)
		held = used
	}
	return out, held, nil
}

// pass encodes one look at every range into out.
func (w *fetch) pass(out *buffer) {
	state, unready := w.conn.server.metadata()
	v := &view{state, w.conn.server.node}
	e := fetchEncoder{b: out.b[:0], version: w.frame.version, committed: w.req.IsolationLevel == 1}
	w.bytes, w.final, w.promoting, w.late, w.missing = 0, false, false, false, false
	w.ranges, w.leaders = w.ranges[:0], w.leaders[:0]
	e.begin(w.frame.corr, 0, len(w.req.Topics))
	for i := range w.req.Topics {
		t := &w.req.Topics[i]
		ref := topicRef{t.Topic, t.TopicID, w.frame.version >= 13}
		topic, known := ref.in(v.state)
		e.topic(ref, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			e.open(p.Partition)
			if !known || p.Partition < 0 || p.Partition >= topic.Ranges {
				w.absent(&e, v, unready, ref, p.Partition)
				continue
			}
			w.part(&e, v, ref, vtop.Range{Topic: topic.ID, Index: p.Partition}, p)
		}
		e.endTopic()
	}
	e.end(w.leaders)
	out.b = e.b
}

// absent answers for a range that is not there. A topic may be there in a moment: the node that told the client of it had
// heard sooner.
func (w *fetch) absent(e *fetchEncoder, v *view, unready error, ref topicRef, index int32) {
	_, known := ref.in(v.state)
	if !known && !v.state.Deleted(ref.id) && time.Since(w.frame.at) < lateElsewhere {
		w.missing = true
		e.close(w.conn.server.code(faceRead, ref.unknown()), -1, -1, fetchTail{})
		return
	}
	w.fail(e, v, vtop.Range{}, unlessUnready(unready, ref.noRange(known, index)), vtop.FetchResult{})
}

// part reads one range into its place.
func (w *fetch) part(e *fetchEncoder, v *view, ref topicRef, r vtop.Range, p *kmsg.FetchRequestTopicPartition) {
	w.ranges = append(w.ranges, r)
	spec := vtop.FetchSpec{
		Offset:           vtop.Offset(p.FetchOffset),
		MaxBytes:         max(min(int(p.PartitionMaxBytes), w.limit()-w.bytes), 0),
		AtLeastOne:       w.bytes == 0,
		ClientEpoch:      -1,
		LastFetchedEpoch: -1,
	}
	if w.frame.version >= 9 {
		spec.ClientEpoch = vtop.Epoch(p.CurrentLeaderEpoch)
	}
	if w.frame.version >= 12 {
		spec.LastFetchedEpoch = vtop.Epoch(p.LastFetchedEpoch)
	}
	result, err := w.conn.server.node.Fetch(r, spec, e.b)
	if err != nil {
		w.fail(e, v, r, ref.during(w.conn.server.node.State(), err), result)
		return
	}
	n := len(result.Dst) - len(e.b)
	e.b = result.Dst
	w.bytes += n
	w.final = w.final || result.Diverging != nil
	w.frame.note(false)
	if spec.Offset > result.HighWatermark && result.Diverging == nil {
		result.HighWatermark = -1 // a new leader's; the client may have seen a higher one (I7)
	}
	e.close(0, result.HighWatermark, result.LogStart, fetchTail{diverging: result.Diverging})
}

// fail closes a partition with an error; records that were appended are taken back.
func (w *fetch) fail(e *fetchEncoder, v *view, r vtop.Range, err error, result vtop.FetchResult) {
	e.b = e.b[:e.records]
	high, start := vtop.Offset(-1), vtop.Offset(-1)
	if errors.Is(err, vtop.ErrOffsetOutOfRange) {
		high, start = result.HighWatermark, result.LogStart
	}
	code := w.conn.server.code(faceRead, err)
	late := errors.Is(err, vtop.ErrNotLeader) && w.conn.server.late(r, w.frame.at)
	if late || errors.Is(err, vtop.ErrNotReady) {
		w.promoting, w.late = true, w.late || late
	} else {
		w.final = true
		w.conn.server.metrics.failed(keyFetch, code)
		w.frame.note(true)
	}
	e.close(code, high, start, fetchTail{leader: w.hint(v, r, code)})
}

// hint finds the leader to tell along with a code, and has its address told at the answer's end. (KIP-951)
func (w *fetch) hint(v *view, r vtop.Range, code int16) *leaderHint {
	if w.frame.version < 16 || !hinted(code) {
		return nil
	}
	hint, ok := v.hint(r, code)
	if !ok {
		return nil
	}
	if !slices.ContainsFunc(w.leaders, func(b broker) bool { return b.id == hint.leader }) {
		if b, ok := v.broker(hint.leader); ok {
			w.leaders = append(w.leaders, b)
		}
	}
	return &hint
}

func (w *fetch) sessionRefused() *buffer { return w.empty(kerr.FetchSessionIDNotFound.Code) }

// throttled answers a client that owes: without any range, which clients take for what it is since there is a throttle time.
func (w *fetch) throttled(owed time.Duration) error {
	out := w.empty(0)
	defer w.conn.server.pool.put(out)
	patchThrottle(w.frame, out.b, owed)
	return w.conn.flush(out)
}

// empty is an answer without any range.
func (w *fetch) empty(code int16) *buffer {
	out := w.conn.server.pool.get(1 << minClass)
	e := fetchEncoder{b: out.b, version: w.frame.version}
	e.begin(w.frame.corr, code, 0)
	e.end(nil)
	out.b = e.b
	return out
}

// watcher waits for ranges to move.
type watcher struct {
	wake chan struct{}
	end  func()
}

// begin starts the watch; false if it was started just now.
func (w *watcher) begin(node Node, ranges []vtop.Range) bool {
	if w.end != nil {
		return true
	}
	w.wake = make(chan struct{}, 1)
	w.end = node.Watch(ranges, w.wake)
	return false
}

func (w *watcher) stop() {
	if w.end != nil {
		w.end()
	}
}

// gatherPause lets records gather that are fewer than was asked for, so that each does not cost a pass of its own.
const gatherPause = 2 * time.Millisecond

// wait returns at the next wake, at the deadline, when the server drains, or with the end of the connection.
func (w *watcher) wait(c *conn, until time.Time, gather bool) error {
	c.timer.Reset(time.Until(until))
	defer c.timer.Stop()
	select {
	case <-w.wake:
	case <-c.timer.C:
		return nil
	case <-c.server.draining:
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	if !gather {
		return nil
	}
	c.timer.Reset(min(gatherPause, time.Until(until)))
	select {
	case <-c.timer.C:
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	return nil
}
