package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterReplicaLogDirs: v1-2
//
//   - A node has one data directory. To move a replica there changes nothing and succeeds if it is there, so that a saved
//     assignment that names the directory can be restored; while it is still on its way it is REPLICA_NOT_AVAILABLE, on which
//     Kafka's tool comes back later. Any other directory is LOG_DIR_NOT_FOUND.

func runAlterReplicaLogDirs(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.AlterReplicaLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.AlterReplicaLogDirsResponse)
	ready := c.node.Ready()
	path := ""
	if ready == nil {
		path = c.node.LogDir().Path
	}
	for i := range req.Dirs {
		dir := &req.Dirs[i]
		for j := range dir.Topics {
			rt := kmsg.NewAlterReplicaLogDirsResponseTopic()
			rt.Topic = dir.Topics[j].Topic
			for _, index := range dir.Topics[j].Partitions {
				rp := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				rp.Partition = index
				err := ready
				if err == nil {
					err = c.keepReplica(rt.Topic, index, dir.Dir, path)
				}
				if err != nil {
					rp.ErrorCode, _ = c.adminAnswer(err)
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
	}
	return resp, nil
}

// keepReplica refuses all but a replica that is where it is wanted.
func (c *call) keepReplica(topic string, index int32, dir, path string) error {
	rg, err := rangeNamed(c.node.State(), topic, index)
	switch {
	case dir != path:
		return refuse(kerr.LogDirNotFound, fmt.Sprintf("directory %.260q: this node has one, %s", dir, path))
	case err != nil:
		return err
	}
	if _, here := rg.On(c.node.Self()); !here {
		return refuse(kerr.ReplicaNotAvailable, fmt.Sprintf("no replica of %s/%d here yet", topic, index))
	}
	return nil
}
