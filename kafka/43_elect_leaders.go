package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// ElectLeaders: v0-2
//
//   - A preferred election (type 0) moves the lease to the first node in the order of preference, which is the first
//     replica that Metadata lists; ELECTION_NOT_NEEDED if it is there, PREFERRED_LEADER_NOT_AVAILABLE with the reason if that
//     node can't lead now.
//   - There are no unclean elections (type 1): who may lack acknowledged records never leads. ELECTION_NOT_NEEDED where there
//     is a leader, ELIGIBLE_LEADERS_NOT_AVAILABLE where there is none: vtopctl range recover is the way out.
//   - Null means all topics; what needs no election is left out of that answer.
//   - The answer comes when the lease is granted; the new holder begins to serve a moment later.

func runElectLeaders(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.ElectLeadersRequest)
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	if err := c.node.Ready(); err != nil {
		resp.ErrorCode, _ = c.adminAnswer(err)
		return resp, nil
	}
	if req.ElectionType != 0 && req.ElectionType != 1 {
		resp.ErrorCode, _ = c.adminAnswer(refuse(kerr.InvalidRequest, "no such election type"))
		return resp, nil
	}
	ctx, cancel := c.within(req.TimeoutMillis)
	defer cancel()
	state := c.node.State()
	topics, all := req.Topics, req.Topics == nil
	if all {
		for t := range state.Topics() {
			rt := kmsg.NewElectLeadersRequestTopic()
			rt.Topic, rt.Partitions = t.Name, everyIndex(t)
			topics = append(topics, rt)
		}
	}
	for i := range topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = topics[i].Topic
		for _, index := range topics[i].Partitions {
			err := c.elect(ctx, state, rt.Topic, index, req.ElectionType)
			if all && errors.Is(err, errLeads) {
				continue
			}
			rp := kmsg.NewElectLeadersResponseTopicPartition()
			rp.Partition = index
			if err != nil {
				rp.ErrorCode, rp.ErrorMessage = c.adminAnswer(err)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		if len(rt.Partitions) > 0 || !all {
			resp.Topics = append(resp.Topics, rt)
		}
	}
	return resp, nil
}

var errLeads = refuse(kerr.ElectionNotNeeded, "the leader needs no election")

// elect brings the lease of one range home.
func (c *call) elect(ctx context.Context, state *fsm.State, topic string, index int32, kind int8) error {
	rg, err := rangeNamed(state, topic, index)
	if err != nil {
		return err
	}
	v := &view{state, c.node}
	_, led := v.leader(rg)
	switch {
	case kind == 1 && led:
		return errLeads
	case kind == 1:
		return refuse(kerr.EligibleLeadersNotAvailable,
			"no replica that is sure to have all acknowledged records is alive, and no other may lead: bring one back, or see 'vtopctl range recover'")
	case len(rg.Preferred) == 0:
		return refuse(kerr.PreferredLeaderNotAvailable, "no node is preferred")
	case led && rg.Lease.Holder == rg.Preferred[0]:
		return errLeads
	}
	return electionError(c.transfer(ctx, rg, rg.Preferred[0]))
}

func (c *call) transfer(ctx context.Context, rg *fsm.Range, to vtop.NodeName) error {
	_, err := c.node.TransferLease(ctx, rg.ID, to)
	return err
}

// electionError gives what a transfer failed for the code of an election. What another node says comes as text only.
func electionError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vtop.ErrNotReady), errors.Is(err, vtop.ErrTimeout), errors.Is(err, vtop.ErrUnknownRange),
		errors.Is(err, vtop.ErrOverloaded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	}
	return refuse(kerr.PreferredLeaderNotAvailable, err.Error())
}

// rangeNamed finds a range by its topic's name.
func rangeNamed(state *fsm.State, topic string, index int32) (*fsm.Range, error) {
	if t, ok := state.TopicByName(topic); ok {
		if rg, ok := state.Range(vtop.Range{Topic: t.ID, Index: index}); ok {
			return rg, nil
		}
	}
	return nil, fmt.Errorf("%w: %q/%d", vtop.ErrUnknownRange, topic, index)
}

func everyIndex(t *fsm.Topic) []int32 {
	out := make([]int32, t.Ranges)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}
