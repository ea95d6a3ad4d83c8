package kafka

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// DescribeQuorum: v0-2
//
//   - The Raft group of the metadata, under the name that Kafka has for it: topic __cluster_metadata, partition 0. The leader
//     epoch is Raft's term, offsets are Raft indexes, the high watermark is the last that the asked node has applied.
//   - Any node answers as it sees things. How far the others are, and when they were heard of, is known to voters, from
//     heartbeats about a second old: 'log end' is what a node said it had applied. -1 where it is not known.
//   - Nodes that are no voters are the observers.
//   - v2 has the nodes' addresses; they are those of the peer port, where Raft is spoken. The directory ids are the nodes'
//     storage ids.

// metadataTopic is what Kafka calls the log of its metadata.
const metadataTopic = "__cluster_metadata"

func runDescribeQuorum(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DescribeQuorumRequest)
	resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	if err := c.node.Ready(); err != nil {
		resp.ErrorCode, resp.ErrorMessage = c.adminAnswer(err)
		return resp, nil
	}
	v := &view{c.node.State(), c.node}
	told := false // once: a small request must not have a huge answer
	for i := range req.Topics {
		rt := kmsg.NewDescribeQuorumResponseTopic()
		rt.Topic = req.Topics[i].Topic
		for _, p := range req.Topics[i].Partitions {
			rp := kmsg.NewDescribeQuorumResponseTopicPartition()
			rp.Partition, rp.LeaderID, rp.LeaderEpoch, rp.HighWatermark = p.Partition, -1, -1, -1
			switch {
			case rt.Topic != metadataTopic || p.Partition != 0:
				err := fmt.Errorf("%w: %.260q/%d: only %s/0 has a quorum of this kind", vtop.ErrUnknownRange, rt.Topic, p.Partition, metadataTopic)
				rp.ErrorCode, rp.ErrorMessage = c.adminAnswer(err)
			case told:
				rp.ErrorCode, rp.ErrorMessage = c.adminAnswer(refuse(kerr.InvalidRequest, "named more than once"))
			default:
				told = true
				resp.Nodes = v.quorum(&rp, c.node.Quorum(), time.Now())
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// quorum fills in the Raft group and returns its nodes.
func (v *view) quorum(rp *kmsg.DescribeQuorumResponseTopicPartition, q Quorum, now time.Time) (nodes []kmsg.DescribeQuorumResponseNode) {
	rp.LeaderEpoch, rp.HighWatermark = int32(min(q.Term, 1<<31-1)), int64(q.Commit)
	for _, m := range q.Members {
		n, ok := v.state.Node(m.Name)
		if !ok || n.State == fsm.NodeGone {
			continue
		}
		id := int32(n.Broker)
		if m.Name == q.Leader {
			rp.LeaderID = id
		}
		st := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		st.ReplicaID, st.ReplicaDirectoryID = id, n.Storage
		st.LogEndOffset, st.LastFetchTimestamp, st.LastCaughtUpTimestamp = -1, -1, -1
		if m.Known {
			heard := now.Add(-m.Silent).UnixMilli()
			st.LogEndOffset, st.LastFetchTimestamp = int64(m.Applied), heard
			if m.Applied >= q.Commit || m.Name == q.Leader {
				st.LastCaughtUpTimestamp = heard
			}
		}
		if m.Voter {
			rp.CurrentVoters = append(rp.CurrentVoters, st)
			nodes = append(nodes, v.quorumNode(n))
		} else {
			rp.Observers = append(rp.Observers, st)
		}
	}
	return nodes
}

func (v *view) quorumNode(n *fsm.Node) kmsg.DescribeQuorumResponseNode {
	out := kmsg.NewDescribeQuorumResponseNode()
	out.NodeID = int32(n.Broker)
	host, port, err := net.SplitHostPort(n.Addresses.Peer)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err == nil && bad == nil {
		l := kmsg.NewDescribeQuorumResponseNodeListener()
		l.Name, l.Host, l.Port = "PEER", host, uint16(number)
		out.Listeners = append(out.Listeners, l)
	}
	return out
}
