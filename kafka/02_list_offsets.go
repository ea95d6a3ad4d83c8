package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// ListOffsets: v1-10
//
//   - Timestamp -2: the log start; -1: the high watermark (for read_committed too: there are no transactions);
//     -3 (v7): the record with the greatest timestamp; -4 (v8): where what is kept on this node begins, which is the log
//     start; -5 (v9): the last offset that is kept elsewhere, -1, since none is; else the first record that is not older.
//     Any other special timestamp, and one before its version, is refused with UNSUPPORTED_VERSION.
//   - A range that the request names twice is refused with INVALID_REQUEST, both times.
//   - A new leader that does not know its high watermark yet answers OFFSET_NOT_AVAILABLE: an end offset that a client
//     saw never goes back (I7). Versions below 5 do not know that code and get LEADER_NOT_AVAILABLE.
//   - v4 checks the client's leader epoch.

func runListOffsets(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	state, unready := c.server.metadata()
	twice := namedTwice(req)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		topic, known := state.TopicByName(t.Topic)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			switch {
			case twice[namedRange{t.Topic, p.Partition}]:
				rp.ErrorCode = kerr.InvalidRequest.Code
			case !known || p.Partition < 0 || p.Partition >= topic.Ranges:
				rp.ErrorCode = c.readCode(unlessUnready(unready, fmt.Errorf("%w: %s/%d", vtop.ErrUnknownRange, t.Topic, p.Partition)))
			default:
				c.listOffset(&rp, vtop.Range{Topic: topic.ID, Index: p.Partition}, p)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

type namedRange struct {
	topic string
	index int32
}

// namedTwice finds the ranges that a request names more than once.
func namedTwice(req *kmsg.ListOffsetsRequest) map[namedRange]bool {
	var twice map[namedRange]bool
	seen := map[namedRange]bool{}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			r := namedRange{req.Topics[i].Topic, req.Topics[i].Partitions[j].Partition}
			if seen[r] && twice == nil {
				twice = map[namedRange]bool{}
			}
			if seen[r] {
				twice[r] = true
			}
			seen[r] = true
		}
	}
	return twice
}

// The timestamps of ListOffsets that are none. (vtop.MaxTimestamp is another.)
const (
	latestTimestamp        = -1
	earliestTimestamp      = -2
	earliestLocalTimestamp = -4
	latestTieredTimestamp  = -5
)

func (c *call) listOffset(rp *kmsg.ListOffsetsResponseTopicPartition, r vtop.Range, p *kmsg.ListOffsetsRequestTopicPartition) {
	epoch := vtop.Epoch(-1)
	if c.frame.version >= 4 {
		epoch = vtop.Epoch(p.CurrentLeaderEpoch)
	}
	version := c.frame.version
	var at vtop.EpochOffset
	var err error
	switch {
	case p.Timestamp == latestTimestamp:
		at, err = c.node.EndOffset(r, epoch)
	case p.Timestamp == earliestTimestamp, p.Timestamp == earliestLocalTimestamp && version >= 8:
		at, err = c.node.StartOffset(r, epoch)
	case p.Timestamp == latestTieredTimestamp && version >= 9:
		_, err = c.node.StartOffset(r, epoch) // only for its checks
		at = vtop.EpochOffset{Epoch: -1, Offset: -1}
	case p.Timestamp == vtop.MaxTimestamp && version >= 7, p.Timestamp >= 0:
		var found vtop.TimeOffset
		var ok bool
		if found, ok, err = c.node.OffsetForTime(r, epoch, p.Timestamp); err == nil && ok {
			rp.Timestamp, at = found.Timestamp, vtop.EpochOffset{Epoch: found.Epoch, Offset: found.Offset}
		} else {
			at = vtop.EpochOffset{Epoch: -1, Offset: -1}
		}
	default: // a special timestamp that is not served, or not in this version
		rp.ErrorCode = kerr.UnsupportedVersion.Code
		return
	}
	if err != nil {
		rp.ErrorCode = c.readCode(err)
		if rp.ErrorCode == kerr.OffsetNotAvailable.Code && version < 5 {
			rp.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		return
	}
	c.frame.note(false)
	rp.Offset, rp.LeaderEpoch = int64(at.Offset), int32(at.Epoch)
}
