package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// ListPartitionReassignments: v0
//
//   - The ranges with replicas on their way, whoever wanted that: a client, an operator, a drain, the cluster's own healing.
//     A replica that is rebuilt where it was is not among them.
//   - Null means all topics. A range that is asked for and has nothing on its way is left out, as Kafka does.

func runListPartitionReassignments(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.ListPartitionReassignmentsRequest)
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	if err := c.node.Ready(); err != nil {
		resp.ErrorCode, resp.ErrorMessage = c.adminAnswer(err)
		return resp, nil
	}
	v := &view{c.node.State(), c.node}
	wanted := map[vtop.Range]bool{}
	for i := range req.Topics {
		if t, ok := v.state.TopicByName(req.Topics[i].Topic); ok {
			for _, index := range req.Topics[i].Partitions {
				wanted[vtop.Range{Topic: t.ID, Index: index}] = true
			}
		}
	}
	for t := range v.state.Topics() {
		rt := kmsg.NewListPartitionReassignmentsResponseTopic()
		rt.Topic = t.Name
		for rg := range v.state.RangesOfTopic(t.ID) {
			if req.Topics != nil && !wanted[rg.ID] {
				continue
			}
			if rp, ok := v.reassigning(rg); ok {
				rt.Partitions = append(rt.Partitions, rp)
			}
		}
		if len(rt.Partitions) > 0 {
			resp.Topics = append(resp.Topics, rt)
		}
	}
	return resp, nil
}

// reassigning is a range as the answer has it; false if nothing is on its way.
func (v *view) reassigning(rg *fsm.Range) (kmsg.ListPartitionReassignmentsResponseTopicPartition, bool) {
	rp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
	m := movesOf(v.state, rg)
	rp.Partition = rg.ID.Index
	rp.AddingReplicas, rp.RemovingReplicas = v.brokerIDs(m.adding), v.brokerIDs(m.removing)
	rp.Replicas, _, _ = v.replicas(rg)
	rp.Replicas = append(rp.Replicas, rp.AddingReplicas...)
	return rp, len(m.adding)+len(m.removing) > 0
}

func (v *view) brokerIDs(nodes []vtop.NodeName) []int32 {
	out := make([]int32, 0, len(nodes))
	for _, name := range nodes {
		if n, ok := v.state.Node(name); ok {
			out = append(out, int32(n.Broker))
		}
	}
	return out
}
