package harness

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A leader refuses records, and the nodes that are asked who leads now are killed before they have answered anything: that is no
// reason to give the records up.
func TestLedger_GoesOnWhereConnectionsEndUnanswered(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	var refused atomic.Bool
	var unanswered atomic.Int32
	k.ControlKey(kmsg.Produce.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		refused.Store(true)
		return notLeader(req.(*kmsg.ProduceRequest)), nil, true
	})
	k.ControlKey(kmsg.Metadata.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		return nil, errors.New("the node was killed"), refused.Load() && unanswered.Add(1) <= 5
	})
	l := StartLedger(t, k.ListenAddrs(), "t", LedgerOptions{Ranges: 1, InFlight: 16, PerSecond: 1000})
	l.WaitMore(10, time.Minute)
	if acks := l.Stop(time.Minute); unanswered.Load() <= 5 || acks[0].ID != 1 {
		t.Errorf("%d questions came, the first record acknowledged is %+v", unanswered.Load(), acks[0])
	}
}

func notLeader(req *kmsg.ProduceRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range req.Topics {
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = topic.Topic, topic.TopicID
		for _, part := range topic.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = part.Partition, kerr.NotLeaderForPartition.Code
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}
