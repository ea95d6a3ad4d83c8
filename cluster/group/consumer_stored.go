package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// StoredMembers shows the members of a group of either protocol as the applied state has them: every node can tell. What a member of the
// classic protocol assigned itself is read if it is in the format of consumers; what cannot be read is left out.
func StoredMembers(st *fsm.State, id string) (out []ConsumerMemberDescription) {
	g, ok := st.Group(id)
	if !ok {
		return nil
	}
	for m := range st.Members(id) {
		d := ConsumerMemberDescription{
			ID: m.ID, InstanceID: m.InstanceID, Rack: m.Rack, ClientID: m.ClientID, ClientHost: m.ClientHost,
			Epoch: m.Epoch, Rebalance: time.Duration(m.RebalanceTimeoutMS) * time.Millisecond,
		}
		if g.Kind == fsm.GroupConsumer {
			if c, err := loadConsumerMember(m); err == nil {
				d.Topics, d.Regex = c.subscription.names, c.subscription.pattern
				d.Assigned, d.Revoking, d.Target = c.assigned, c.revoking, c.target
			}
		} else {
			d.Epoch = g.Epoch
			d.Assigned = classicAssigned(st, m.Assignment)
		}
		out = append(out, d)
	}
	return out
}

// classicAssigned reads an assignment in the format of consumers; nil if it is in another.
func classicAssigned(st *fsm.State, data []byte) rangeSet {
	var a kmsg.ConsumerMemberAssignment
	if a.ReadFrom(data) != nil {
		return nil
	}
	var out []vtop.Range
	for _, t := range a.Topics {
		topic, ok := st.TopicByName(t.Topic)
		if !ok {
			continue
		}
		for _, index := range t.Partitions {
			out = append(out, vtop.Range{Topic: topic.ID, Index: index})
		}
	}
	return newRangeSet(out)
}
