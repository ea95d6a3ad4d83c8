package kafka

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// DescribeLogDirs: v1-4
//
//   - The one data directory of the node that is asked, with the size of each replica there that counts, of the topics that
//     are asked for, or of all if null.
//   - The size is that of the records; what is zeroed ahead of a tail is not in it. The lag is what a replica lacks of what
//     this node knows to be committed.
//   - A learner, which a repair or a reassignment brings up, is told of as any other.
//   - A disk that hangs or fails is KAFKA_STORAGE_ERROR of its directory.
//   - v4 tells the size of the file system and what is free.

func runDescribeLogDirs(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	if err := c.node.Ready(); err != nil {
		resp.ErrorCode, _ = c.adminAnswer(err)
		return resp, nil
	}
	wanted := askedRanges(c.node.State(), req.Topics)
	found := c.node.LogDir()
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = found.Path, found.Total, found.Free
	if found.Err != nil {
		dir.ErrorCode, _ = c.adminAnswer(found.Err)
	}
	slices.SortFunc(found.Replicas, func(a, b LogDirReplica) int { return a.Range.Compare(b.Range) })
	var last vtop.TopicID
	for _, rep := range found.Replicas {
		t, ok := c.node.State().Topic(rep.Range.Topic)
		if !ok || wanted != nil && !wanted[rep.Range] {
			continue
		}
		if len(dir.Topics) == 0 || last != t.ID {
			rt := kmsg.NewDescribeLogDirsResponseDirTopic()
			rt.Topic, last = t.Name, t.ID
			dir.Topics = append(dir.Topics, rt)
		}
		rp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		rp.Partition, rp.Size, rp.OffsetLag = rep.Range.Index, rep.Bytes, rep.Lag
		rt := &dir.Topics[len(dir.Topics)-1]
		rt.Partitions = append(rt.Partitions, rp)
	}
	slices.SortFunc(dir.Topics, func(a, b kmsg.DescribeLogDirsResponseDirTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	resp.Dirs = append(resp.Dirs, dir)
	return resp, nil
}

// askedRanges are the ranges that a request names; nil if it names none, which stands for all.
func askedRanges(state *fsm.State, topics []kmsg.DescribeLogDirsRequestTopic) map[vtop.Range]bool {
	if topics == nil {
		return nil
	}
	out := map[vtop.Range]bool{}
	for i := range topics {
		if t, ok := state.TopicByName(topics[i].Topic); ok {
			for _, index := range topics[i].Partitions {
				out[vtop.Range{Topic: t.ID, Index: index}] = true
			}
		}
	}
	return out
}
