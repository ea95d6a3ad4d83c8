package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

func TestProduce_Refusals(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	c.topic("t", 1)
	good := oneBatch("x", nil)
	torn := append(batch.Batch(nil), good...)
	torn[len(torn)-1] ^= 1
	old := append(batch.Batch(nil), good...)
	old[16] = 1
	tx := append(batch.Batch(nil), good...)
	cases := []struct {
		name string
		node int
		req  *kmsg.ProduceRequest
		want *kerr.Error
	}{
		{"unknown topic", 0, produceRequest(9, -1, "none", 0, good), kerr.UnknownTopicOrPartition},
		{"unknown range", 0, produceRequest(9, -1, "t", 1, good), kerr.UnknownTopicOrPartition},
		{"negative range", 0, produceRequest(9, -1, "t", -1, good), kerr.UnknownTopicOrPartition},
		{"not the leader", 1, produceRequest(9, -1, "t", 0, good), kerr.NotLeaderForPartition},
		{"odd acks", 0, produceRequest(9, 2, "t", 0, good), kerr.InvalidRequiredAcks},
		{"a bit flipped", 0, produceRequest(9, -1, "t", 0, torn), kerr.CorruptMessage},
		{"message format 1", 0, produceRequest(9, -1, "t", 0, old), kerr.InvalidRecord},
		{"two batches", 0, produceRequest(9, -1, "t", 0, append(append(batch.Batch(nil), good...), good...)), kerr.InvalidRecord},
		{"null", 0, produceRequest(9, -1, "t", 0, nil), kerr.CorruptMessage},
		{"too large", 0, produceRequest(9, -1, "t", 0, batch.Build(batch.Spec{Records: []batch.Record{{Value: make([]byte, 1<<20)}}})), kerr.MessageTooLarge},
		{"transactional", 0, func() *kmsg.ProduceRequest {
			r := produceRequest(9, -1, "t", 0, tx)
			r.TransactionID = kmsg.StringPtr("tx")
			return r
		}(), kerr.TransactionalIDAuthorizationFailed},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			p := produced(dial(t, c.nodes[tc.node]).ask(t, tc.req))
			if p.ErrorCode != tc.want.Code || p.ErrorMessage == nil || p.BaseOffset != -1 {
				t.Fatalf("code %d (%v) base %d, want %s", p.ErrorCode, kerr.ErrorForCode(p.ErrorCode), p.BaseOffset, tc.want.Message)
			}
		})
	}
	if l := c.log(vtop.Range{Topic: func() vtop.TopicID { tp, _ := c.state.TopicByName("t"); return tp.ID }()}); l.end != 0 {
		t.Errorf("log end %d: a refused batch was written", l.end)
	}
}

func TestProduce_OneBadRangeDoesNotSpoilTheOthers(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 3)
	req := produceRequest(8, -1, "t", 0, oneBatch("x", nil))
	for i := range 3 {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = int32(i+1), oneBatch("x", nil)
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
	}
	resp := dial(t, c.nodes[0]).ask(t, req).(*kmsg.ProduceResponse)
	for i, p := range resp.Topics[0].Partitions {
		if want := map[bool]int16{true: kerr.UnknownTopicOrPartition.Code}[i == 3]; p.ErrorCode != want || p.Partition != int32(i) {
			t.Errorf("partition %d: code %d, want %d", p.Partition, p.ErrorCode, want)
		}
	}
}

func TestProduce_TimeoutIsUnknownAndALateAckHarmless(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	c.hold()
	conn := dial(t, c.nodes[0])
	req := produceRequest(9, -1, "t", 0, oneBatch("x", nil))
	req.TimeoutMillis = 20
	if p := produced(conn.ask(t, req)); p.ErrorCode != kerr.RequestTimedOut.Code {
		t.Fatalf("code %d, want REQUEST_TIMED_OUT", p.ErrorCode)
	}
	c.release(false)
	for range 20 { // the calls that are used again must not see the late one's result
		if p := produced(conn.ask(t, produceRequest(9, -1, "t", 0, oneBatch("x", nil)))); p.ErrorCode != 0 || p.BaseOffset == 0 {
			t.Fatalf("code %d base %d", p.ErrorCode, p.BaseOffset)
		}
	}
}

func TestProduce_AckUnderAnOldEpochIsNoSuccess(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	r := c.topic("t", 1)[0]
	c.hold()
	conn := dial(t, c.nodes[0])
	req := produceRequest(9, -1, "t", 0, oneBatch("x", nil))
	conn.send(t, req)
	eventually(t, "admitted", func() bool { return c.appends.Load() == 1 })
	c.cut(r)
	c.grant(r, "n2", true)
	c.release(false)
	if _, resp := conn.receive(t, req); produced(resp).ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Fatalf("code %d for a record that was cut (I1)", produced(resp).ErrorCode)
	}
}

// patientServer waits for a leader for as long as a busy machine may need to bring one about.
func patientServer(cfg *Config) { cfg.LeaderWait = hangs }

func TestProduce_WaitsForPromotion(t *testing.T) {
	c := newFakeCluster(t, 2, patientServer)
	r := c.topic("t", 1)[0]
	c.grant(r, "n2", false)
	conn := dial(t, c.nodes[1])
	req := produceRequest(9, -1, "t", 0, oneBatch("x", nil))
	conn.send(t, req)
	eventually(t, "the first attempt finds a promotion", func() bool { return c.appends.Load() == 1 && c.watched.Load() == 1 })
	c.start(r)
	if _, resp := conn.receive(t, req); produced(resp).ErrorCode != 0 {
		t.Fatalf("code %d: the client has to back off for a failover", produced(resp).ErrorCode)
	}
}

func TestProduce_PromotionThatNeverEndsIsRetriable(t *testing.T) {
	c := newFakeCluster(t, 2, func(cfg *Config) { cfg.LeaderWait = 30 * time.Millisecond })
	r := c.topic("t", 1)[0]
	c.grant(r, "n2", false)
	if p := produced(dial(t, c.nodes[1]).ask(t, produceRequest(9, -1, "t", 0, oneBatch("x", nil)))); p.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Fatalf("code %d", p.ErrorCode)
	}
}

func TestProduce_FullBuffersHoldTheReaderBack(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	c.set(func(c *fakeCluster) {
		c.refuse = func(vtop.Range, batch.Batch) error { return fmt.Errorf("%w: tail buffer", vtop.ErrOverloaded) }
	})
	conn := dial(t, c.nodes[0])
	first, second := produceRequest(9, -1, "t", 0, oneBatch("1", nil)), produceRequest(9, -1, "t", 0, oneBatch("2", nil))
	conn.send(t, first, second)
	eventually(t, "it tries again", func() bool { return c.appends.Load() >= 3 })
	c.set(func(c *fakeCluster) { c.refuse = nil })
	for i, req := range []kmsg.Request{first, second} {
		if _, resp := conn.receive(t, req); produced(resp).ErrorCode != 0 || produced(resp).BaseOffset != int64(i) {
			t.Fatalf("request %d: code %d base %d: overload broke the order", i+1, produced(resp).ErrorCode, produced(resp).BaseOffset)
		}
	}
}

func TestProduce_BatchesBehindARefusedOneGetItsCode(t *testing.T) {
	// Case: the first of three in flight is refused for want of space, the others find a gap.
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	c.set(func(c *fakeCluster) {
		c.refuse = func(_ vtop.Range, b batch.Batch) error {
			if b.BaseSequence() == 1 && c.appends.Load() == 2 {
				return fmt.Errorf("%w: fake", vtop.ErrNoSpace)
			}
			return nil
		}
	})
	conn := dial(t, c.nodes[0])
	var reqs []kmsg.Request
	for seq := range int32(4) {
		reqs = append(reqs, produceRequest(9, -1, "t", 0, oneBatch("x", &batch.Producer{ID: 7, Epoch: 0, Sequence: seq})))
	}
	conn.send(t, reqs...)
	want := []int16{0, kerr.KafkaStorageError.Code, kerr.KafkaStorageError.Code, kerr.KafkaStorageError.Code}
	for i, req := range reqs {
		if _, resp := conn.receive(t, req); produced(resp).ErrorCode != want[i] {
			t.Errorf("batch %d: code %d, want %d", i, produced(resp).ErrorCode, want[i])
		}
	}
	// Case: the client sends them again, and then goes wrong by itself: that is told.
	for seq := int32(1); seq < 4; seq++ {
		if p := produced(conn.ask(t, reqs[seq])); p.ErrorCode != 0 || p.BaseOffset != int64(seq) {
			t.Errorf("batch %d again: code %d base %d", seq, p.ErrorCode, p.BaseOffset)
		}
	}
	gap := produceRequest(9, -1, "t", 0, oneBatch("x", &batch.Producer{ID: 7, Epoch: 0, Sequence: 9}))
	if p := produced(conn.ask(t, gap)); p.ErrorCode != kerr.OutOfOrderSequenceNumber.Code {
		t.Errorf("a real gap: code %d", p.ErrorCode)
	}
	// Case: a duplicate is acknowledged with the offset of its original.
	if p := produced(conn.ask(t, reqs[2])); p.ErrorCode != 0 || p.BaseOffset != 2 {
		t.Errorf("duplicate: code %d base %d", p.ErrorCode, p.BaseOffset)
	}
}

func TestRefusals_AgeAndWrap(t *testing.T) {
	var r refusals
	key := producerKey{r: vtop.Range{Index: 1}, id: 1}
	now := time.Unix(1000, 0)
	gap, busy := kerr.OutOfOrderSequenceNumber.Code, kerr.KafkaStorageError.Code
	r.code(key, 1<<31-1, busy, now)
	if got := r.code(key, 3, gap, now); got != busy {
		t.Errorf("behind a refusal, past the wrap of sequence numbers: %d", got)
	}
	if got := r.code(key, 1<<31-5, gap, now); got != gap {
		t.Errorf("before the refused batch: %d", got)
	}
	if got := r.code(key, 3, gap, now.Add(refusalAge)); got != gap {
		t.Errorf("long after: %d", got)
	}
	if got := r.code(producerKey{}, 3, gap, now); got != gap {
		t.Errorf("without a producer: %d", got)
	}
	for i := range int64(5 * maxRefusals) {
		r.code(producerKey{id: i + 5}, 0, busy, now)
		if len(r.seen) > maxRefusals {
			t.Fatal("the table grows without bound (I13)")
		}
	}
}

// A client may be at the new leader before the grant is: a refusal would cost it a whole back-off.
func TestProduce_WaitsAMomentForTheGrantToArrive(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	r := c.topic("t", 1)[0]
	conn := dial(t, c.nodes[1])
	req := produceRequest(10, -1, "t", 0, oneBatch("x", nil))
	for try := 0; ; try++ { // the moment is short: a machine that is held up may miss it
		c.grant(r, "n1", true)
		before := c.appends.Load()
		began := time.Now()
		conn.send(t, req)
		eventually(t, "the first attempt finds another leader", func() bool { return c.appends.Load() > before })
		c.grant(r, "n2", true)
		inTime := time.Since(began) < lateElsewhere
		_, resp := conn.receive(t, req)
		switch code := produced(resp).ErrorCode; {
		case code == 0:
			return
		case inTime || try == 100:
			t.Fatalf("code %d, try %d", code, try)
		}
	}
}

// KIP-951: who asked the wrong node is told the right one.
func TestProduce_RefusalNamesTheLeader(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	r := c.topic("t", 1)[0]
	rg, _ := c.nodes[1].State().Range(r)
	resp := dial(t, c.nodes[1]).ask(t, produceRequest(10, -1, "t", 0, oneBatch("x", nil))).(*kmsg.ProduceResponse)
	p := produced(resp)
	leader, _ := c.nodes[1].State().Node(rg.Lease.Holder)
	if p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != int32(leader.Broker) || p.CurrentLeader.LeaderEpoch != int32(rg.LastEpoch) {
		t.Fatalf("code %d, leader %+v", p.ErrorCode, p.CurrentLeader)
	}
	if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != int32(leader.Broker) || resp.Brokers[0].Port == 0 {
		t.Fatalf("brokers %+v", resp.Brokers)
	}
}

// A batch that was admitted before its leader was deposed is in the log: admitting it again here would write it twice.
func TestProduce_AdmittedBatchIsNotAdmittedAgain(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	c.set(func(c *fakeCluster) {
		c.unknown = fmt.Errorf("%w: deposed between append and answer", vtop.ErrNotLeader)
	})
	p := produced(dial(t, c.nodes[0]).ask(t, produceRequest(10, -1, "t", 0, oneBatch("x", nil))))
	if p.ErrorCode != kerr.NotLeaderForPartition.Code || p.BaseOffset != -1 || c.appends.Load() != 1 {
		t.Fatalf("code %d, base %d, admitted %d times", p.ErrorCode, p.BaseOffset, c.appends.Load())
	}
}
