package kafka

import (
	"time"

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
	// latePause lies between two looks.
	latePause = 5 * time.Millisecond
)

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

// hintLeader tells a refused client who leads (KIP-951), so that it needs no Metadata. Nothing is said of a range whose
// leader this node does not know, or believes itself to be.
func (c *conn) hintLeader(resp *kmsg.ProduceResponse, rp *kmsg.ProduceResponseTopicPartition, r vtop.Range) {
	v := &view{c.server.node.State(), c.server.node}
	rg, ok := v.state.Range(r)
	if !ok || rg.Lease.Holder == c.server.node.Self() {
		return
	}
	id, ok := v.leader(rg)
	if !ok {
		return
	}
	rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = id, int32(rg.LastEpoch)
	for _, b := range resp.Brokers {
		if b.NodeID == id {
			return
		}
	}
	for _, b := range v.brokers() {
		if b.id == id {
			hint := kmsg.NewProduceResponseBroker()
			hint.NodeID, hint.Host, hint.Port, hint.Rack = b.id, b.host, b.port, b.rack
			resp.Brokers = append(resp.Brokers, hint)
		}
	}
}
