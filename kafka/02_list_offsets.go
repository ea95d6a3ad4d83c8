package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// ListOffsets: v1-7
//
//   - Timestamp -2: the log start; -1: the high watermark (for read_committed too: there are no transactions);
//     -3 (v7): the record with the greatest timestamp; else the first record that is not older.
//   - A new leader that does not know its high watermark yet answers OFFSET_NOT_AVAILABLE: an end offset that a client
//     saw never goes back (I7). Versions below 5 do not know that code and get LEADER_NOT_AVAILABLE.
//   - v4 checks the client's leader epoch.

func runListOffsets(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	state := c.node.State()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		topic, known := state.TopicByName(t.Topic)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			if !known || p.Partition < 0 || p.Partition >= topic.Ranges {
				rp.ErrorCode = c.readCode(fmt.Errorf("%w: %s/%d", vtop.ErrUnknownRange, t.Topic, p.Partition))
			} else {
				c.listOffset(&rp, vtop.Range{Topic: topic.ID, Index: p.Partition}, p)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (c *call) listOffset(rp *kmsg.ListOffsetsResponseTopicPartition, r vtop.Range, p *kmsg.ListOffsetsRequestTopicPartition) {
	epoch := vtop.Epoch(-1)
	if c.frame.version >= 4 {
		epoch = vtop.Epoch(p.CurrentLeaderEpoch)
	}
	var at EpochOffset
	var err error
	switch {
	case p.Timestamp == -1:
		at, err = c.node.EndOffset(r, epoch)
	case p.Timestamp == -2:
		at, err = c.node.StartOffset(r, epoch)
	case p.Timestamp == MaxTimestamp && c.frame.version >= 7, p.Timestamp >= 0:
		var found TimeOffset
		var ok bool
		if found, ok, err = c.node.OffsetForTime(r, epoch, p.Timestamp); err == nil && ok {
			rp.Timestamp, at = found.Timestamp, EpochOffset{found.Epoch, found.Offset}
		} else {
			at = EpochOffset{-1, -1}
		}
	default: // a special timestamp that is not served, or not in this version
		rp.ErrorCode = kerr.UnsupportedVersion.Code
		return
	}
	if err != nil {
		rp.ErrorCode = c.readCode(err)
		if rp.ErrorCode == kerr.OffsetNotAvailable.Code && c.frame.version < 5 {
			rp.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		return
	}
	c.frame.note(false)
	rp.Offset, rp.LeaderEpoch = int64(at.Offset), int32(at.Epoch)
}
