package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// How long a node that does not lead a range waits before it says so. Nodes apply the metadata each at its own pace, a
// few milliseconds apart: a client that has just learned from one node that another leads may be there before the grant
// is, and a refusal would cost it a whole back-off (seconds, with the defaults of some clients).
const (
	// lateElsewhere is the wait while this node's view has another living leader.
	lateElsewhere = 50 * time.Millisecond
	// lateTopic is the wait for a topic that this node does not know yet.
	lateTopic = 200 * time.Millisecond
	// lateOnce is for how long after a refusal the same topic is not waited for again.
	lateOnce = 5 * time.Second
	// lateTopics is how many topics of a connection are remembered for that.
	lateTopics = 64
	// latePause lies between two looks.
	latePause = 5 * time.Millisecond
)

// absentTopics are the topics that a connection's Produce requests named last though they are not there. Each is waited for once: what
// waits holds up all that comes behind it on the connection, and a producer of a topic that was deleted goes on asking.
type absentTopics map[topicRef]time.Time

// worthWait reports whether a topic that is not there may be known in a moment.
func (a absentTopics) worthWait(ref topicRef, now time.Time) bool {
	last, noted := a[ref]
	return !noted || now.Sub(last) > lateOnce
}

// note remembers that a topic was not there.
func (a *absentTopics) note(ref topicRef, now time.Time) {
	if *a == nil || len(*a) >= lateTopics {
		*a = absentTopics{}
	}
	(*a)[ref] = now
}

// late reports whether a refusal for want of leadership is worth another look, for a request that came at asked: while
// the range has no living leader, up to Config.LeaderWait; else for a moment, in case this node has not heard yet.
func (s *Server) late(r vtop.Range, asked time.Time) bool {
	waited := time.Since(asked)
	if waited < lateElsewhere {
		return true
	}
	if waited >= s.cfg.LeaderWait {
		return false
	}
	v := &view{s.node.State(), s.node}
	rg, ok := v.state.Range(r)
	if !ok {
		return false
	}
	_, led := v.leader(rg)
	return !led && s.leaders.fresh(r, time.Now())
}

// hintLeader tells a refused client who leads (KIP-951), so that it needs no Metadata.
func (c *conn) hintLeader(resp *kmsg.ProduceResponse, rp *kmsg.ProduceResponseTopicPartition, r vtop.Range) {
	if !hinted(rp.ErrorCode) {
		return
	}
	v := &view{c.server.node.State(), c.server.node}
	hint, ok := v.hint(r, rp.ErrorCode)
	if !ok {
		return
	}
	rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = hint.leader, hint.epoch
	for _, b := range resp.Brokers {
		if b.NodeID == hint.leader {
			return
		}
	}
	if b, ok := v.broker(hint.leader); ok {
		rb := kmsg.NewProduceResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = b.id, b.host, b.port, b.rack
		resp.Brokers = append(resp.Brokers, rb)
	}
}

// leaderHint is who leads a range, and under which epoch.
type leaderHint struct{ leader, epoch int32 }

// hinted says whether the present leader is told along with a code.
func hinted(code int16) bool {
	return code == kerr.NotLeaderForPartition.Code || code == kerr.FencedLeaderEpoch.Code
}

// hint finds the leader to tell along with a code. Nothing is said of a range whose leader this node does not know, nor,
// to a client that is told to look elsewhere, of one that this node believes to lead itself.
func (v *view) hint(r vtop.Range, code int16) (leaderHint, bool) {
	rg, ok := v.state.Range(r)
	if !ok || rg.Lease.Holder == v.node.Self() && code == kerr.NotLeaderForPartition.Code {
		return leaderHint{}, false
	}
	id, ok := v.leader(rg)
	return leaderHint{id, int32(rg.LastEpoch)}, ok
}
