package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// A client that goes while its request waits is no error of ours, which is what the log would say.
func TestClientThatLeaves_IsNoErrorWithoutACode(t *testing.T) {
	c := newFakeCluster(t, 2, func(cfg *Config) { cfg.LeaderWait = hangs })
	c.set(func(c *fakeCluster) { c.down[c.nodes[1].name] = true })
	for i := range 8 { // some of their coordinators are on the node that is down: the answer waits until that moves
		conn := dial(t, c.nodes[0])
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey = fmt.Sprintf("g%d", i)
		conn.send(t, req)
		conn.Close()
	}
}

// A node that has just started knows of no topic yet. Clients give up what waits for a topic that is said to be unknown a few times, and
// ask again where a node does not lead.
func TestNodeThatHasNotCaughtUp_CallsNothingUnknown(t *testing.T) {
	id := vtop.TopicID{1, 2, 3}
	produce := func(version int16) kmsg.Request {
		req := produceRequest(version, -1, "t", 0, oneBatch("x", nil))
		req.Topics[0].TopicID = id
		return req
	}
	fetch := func(version int16) kmsg.Request {
		req := fetchRequest(version, "t", 0, 0)
		req.Topics[0].TopicID = id
		return req
	}
	list := kmsg.NewPtrListOffsetsRequest()
	list.Version = 7
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: latestTimestamp, CurrentLeaderEpoch: -1}}}}
	epoch := kmsg.NewPtrOffsetForLeaderEpochRequest()
	epoch.Version = 4
	epoch.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: -1}}}}
	remove := kmsg.NewPtrDeleteRecordsRequest()
	remove.Version = 2
	remove.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 1}}}}
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	for _, tc := range []struct {
		name    string
		req     kmsg.Request
		code    func(kmsg.Response) int16
		unknown *kerr.Error // once the node has caught up
	}{
		{"produce by name", produce(12), func(r kmsg.Response) int16 { return produced(r).ErrorCode }, kerr.UnknownTopicOrPartition},
		{"produce by id", produce(13), func(r kmsg.Response) int16 { return produced(r).ErrorCode }, kerr.UnknownTopicID},
		{"fetch by name", fetch(12), func(r kmsg.Response) int16 { return fetched(r).ErrorCode }, kerr.UnknownTopicOrPartition},
		{"fetch by id", fetch(13), func(r kmsg.Response) int16 { return fetched(r).ErrorCode }, kerr.UnknownTopicID},
		{"list offsets", list, func(r kmsg.Response) int16 { return r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode }, kerr.UnknownTopicOrPartition},
		{"offset for leader epoch", epoch, func(r kmsg.Response) int16 {
			return r.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0].ErrorCode
		}, kerr.UnknownTopicOrPartition},
		{"delete records", remove, func(r kmsg.Response) int16 { return r.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode }, kerr.UnknownTopicOrPartition},
		{"describe producers", producers, func(r kmsg.Response) int16 {
			return r.(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ErrorCode
		}, kerr.UnknownTopicOrPartition},
	} {
		c := newFakeCluster(t, 1, nil)
		conn := dial(t, c.nodes[0])
		c.set(func(c *fakeCluster) { c.notReady = true })
		wantCode(t, tc.name+" at a node that has not caught up", tc.code(conn.ask(t, tc.req)), kerr.NotLeaderForPartition)
		c.set(func(c *fakeCluster) { c.notReady = false })
		wantCode(t, tc.name+" at one that has", tc.code(conn.ask(t, tc.req)), tc.unknown)
	}
}
