package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
)

// OffsetCommit: v2-9
//
//   - Answered when the state machine has the offsets: no coordinator answers older ones afterwards.
//   - Refused unless the member is one of the present generation (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID,
//     STALE_MEMBER_EPOCH); while assignments are on their way, with REBALANCE_IN_PROGRESS. A consumer that assigns by itself names no
//     generation, and may commit while the group has no members.
//   - The retention time of v2-4 is not looked at: how long offsets are kept is the cluster's to say, and only groups without
//     members lose any.

func runOffsetCommit(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	commit := group.Commit{Group: req.Group, Claim: group.Claim{MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation}}
	state, unready := c.server.metadata()
	// of says which offset of the commit each partition is; -1 for one that is not there.
	var of []int
	for i := range req.Topics {
		t, known := state.TopicByName(req.Topics[i].Topic)
		for _, p := range req.Topics[i].Partitions {
			if !known || p.Partition < 0 || p.Partition >= t.Ranges {
				of = append(of, -1)
				continue
			}
			of = append(of, len(commit.Offsets))
			o := group.CommitOffset{Range: vtop.Range{Topic: t.ID, Index: p.Partition}, Offset: vtop.Offset(p.Offset), LeaderEpoch: vtop.Epoch(p.LeaderEpoch)}
			if p.Metadata != nil {
				o.Metadata = *p.Metadata
			}
			commit.Offsets = append(commit.Offsets, o)
		}
	}
	errs, err := c.commitOffsets(commit)
	for i := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic = req.Topics[i].Topic
		for _, p := range req.Topics[i].Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			own := err
			switch at := of[0]; {
			case own != nil:
			case at < 0:
				own = unlessUnready(unready, fmt.Errorf("%w: %q/%d", vtop.ErrUnknownRange, rt.Topic, p.Partition))
			default:
				own = errs[at]
			}
			of = of[1:]
			rp.ErrorCode = c.groupCode(own)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (c *call) commitOffsets(commit group.Commit) ([]error, error) {
	groups, err := c.node.Groups()
	if err != nil {
		return nil, err
	}
	return groups.Commit(c, commit)
}
