package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
)

// OffsetFetch: v1-9
//
//   - Up to v7 one group, from v8 on many. Without topics (null, from v2 on) all that the group has committed.
//   - A range without a committed offset, or that is not there, has offset -1 and no error.
//   - Every offset that was acknowledged before is there, whichever node did: the coordinator asks the metadata quorum, once for a
//     request. Without a quorum the answer waits for it, up to 5 s.
//   - There are no transactions, so every offset is stable.
//   - Where Kafka says COORDINATOR_NOT_AVAILABLE this says NOT_COORDINATOR, on which every client looks for the coordinator again;
//     for the Java client the other one is fatal here.

func runOffsetFetch(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.OffsetFetchRequest)
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	read := c.readOffsets()
	if req.Version >= 8 {
		for i := range req.Groups {
			g := &req.Groups[i]
			resp.Groups = append(resp.Groups, c.fetchOffsets(read, g, g.Topics == nil))
		}
		return resp, nil
	}
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group = req.Group
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetFetchRequestGroupTopic()
		rt.Topic, rt.Partitions = t.Topic, t.Partitions
		one.Topics = append(one.Topics, rt)
	}
	found := c.fetchOffsets(read, &one, req.Topics == nil && req.Version >= 2)
	resp.ErrorCode = found.ErrorCode
	for _, t := range found.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// fetchOffsets answers for one group: for all of its ranges, or for those asked for.
func (c *call) fetchOffsets(read offsetReader, g *kmsg.OffsetFetchRequestGroup, all bool) kmsg.OffsetFetchResponseGroup {
	rg := kmsg.NewOffsetFetchResponseGroup()
	rg.Group = g.Group
	state, err := read(g)
	if errors.Is(err, group.ErrNotAvailable) {
		err = refuse(kerr.NotCoordinator, err.Error())
	}
	rg.ErrorCode = c.groupCode(err)
	switch {
	case err == nil && all:
		rg.Topics = allOffsets(state, g.Group)
		return rg
	case err != nil && c.frame.version >= 8:
		return rg
	}
	for i := range g.Topics {
		t := &g.Topics[i]
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic = t.Topic
		for _, index := range t.Partitions {
			rp := offsetAt(state, g.Group, t.Topic, index)
			rp.ErrorCode = rg.ErrorCode // v1 has no other place for it
			rt.Partitions = append(rt.Partitions, rp)
		}
		rg.Topics = append(rg.Topics, rt)
	}
	return rg
}

// offsetReader gives a state that has the offsets of a group.
type offsetReader func(*kmsg.OffsetFetchRequestGroup) (*fsm.State, error)

// readOffsets begins the reading of one request.
func (c *call) readOffsets() offsetReader {
	groups, err := c.node.Groups()
	if err != nil {
		return func(*kmsg.OffsetFetchRequestGroup) (*fsm.State, error) { return nil, err }
	}
	reading := groups.Read()
	return func(g *kmsg.OffsetFetchRequestGroup) (*fsm.State, error) {
		return reading.Offsets(c, g.Group, g.MemberID, g.MemberEpoch)
	}
}

func newOffset(index int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = index, -1, -1, new(string)
	return rp
}

func fillOffset(rp *kmsg.OffsetFetchResponseGroupTopicPartition, o *fsm.GroupOffset) {
	rp.Offset, rp.Metadata = int64(o.Offset), &o.Metadata
	if o.LeaderEpoch != vtop.NoEpoch {
		rp.LeaderEpoch = int32(o.LeaderEpoch)
	}
}

// offsetAt finds one offset; state may be nil.
func offsetAt(state *fsm.State, id, topic string, index int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := newOffset(index)
	if state == nil {
		return rp
	}
	if t, ok := state.TopicByName(topic); ok {
		if o, ok := state.Offset(id, vtop.Range{Topic: t.ID, Index: index}); ok {
			fillOffset(&rp, o)
		}
	}
	return rp
}

// allOffsets lists all that a group has committed, by topic.
func allOffsets(state *fsm.State, id string) (out []kmsg.OffsetFetchResponseGroupTopic) {
	var last vtop.TopicID
	for o := range state.Offsets(id) {
		t, ok := state.Topic(o.Range.Topic)
		if !ok {
			continue
		}
		if len(out) == 0 || last != t.ID {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, last = t.Name, t.ID
			out = append(out, rt)
		}
		rp := newOffset(o.Range.Index)
		fillOffset(&rp, o)
		rt := &out[len(out)-1]
		rt.Partitions = append(rt.Partitions, rp)
	}
	return out
}
