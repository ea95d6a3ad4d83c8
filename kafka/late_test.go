package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A topic that is not there is waited for once, for whoever heard of it a moment sooner; a producer that goes on writing to one that was
// deleted holds its other topics up no more.
func TestProduce_TopicThatIsGoneIsWaitedForOnce(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	conn := dial(t, c.nodes[0])
	looks := func() int64 { return c.states.Load() }
	gone := produceRequest(9, -1, "gone", 0, oneBatch("x", nil))
	before := looks()
	if p := produced(conn.ask(t, gone)); p.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Fatalf("code %d", p.ErrorCode)
	}
	once := looks() - before
	before = looks()
	const more = 20
	for range more {
		conn.send(t, gone, produceRequest(9, -1, "t", 0, oneBatch("x", nil)))
		for _, want := range []int16{kerr.UnknownTopicOrPartition.Code, 0} {
			_, resp := conn.receive(t, &kmsg.ProduceRequest{Version: 9})
			if p := produced(resp); p.ErrorCode != want {
				t.Fatalf("code %d, want %d", p.ErrorCode, want)
			}
		}
	}
	if n := looks() - before; once < 5 || n > more*once/2 {
		t.Errorf("%d looks for the first request to a topic that is not there, %d for %d more", once, n, more)
	}
}

func TestAbsentTopics(t *testing.T) {
	var a absentTopics
	now := time.Now()
	ref := topicRef{name: "t"}
	if !a.worthWait(ref, now) {
		t.Error("never asked for, and not waited for")
	}
	a.note(ref, now)
	if a.worthWait(ref, now.Add(lateOnce)) || !a.worthWait(ref, now.Add(lateOnce+1)) {
		t.Error("it is remembered for lateOnce")
	}
	for i := range 10 * lateTopics {
		a.note(topicRef{name: string(rune('a' + i))}, now)
	}
	if len(a) > lateTopics {
		t.Errorf("%d topics are remembered", len(a))
	}
}
