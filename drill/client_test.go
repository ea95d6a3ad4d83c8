package drill

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A leader refuses records, and nodes that are asked who leads now end before they have answered anything: no record is given up.
func TestRun_QuestionsWithoutAnAnswerLoseNoRecord(t *testing.T) {
	var unanswered atomic.Int32
	edit := func(f *fakeAdmin, _ *Config) {
		var refused atomic.Bool
		unanswered.Store(0)
		f.kafka.ControlKey(kmsg.Produce.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			refused.Store(true)
			return notLeader(req.(*kmsg.ProduceRequest)), nil, true
		})
		f.kafka.ControlKey(kmsg.Metadata.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.kafka.KeepControl()
			return nil, errors.New("the node was killed"), refused.Load() && unanswered.Add(1) <= 40
		})
	}
	_, r := drilled(t, "leader-transfer", edit, func(*fakeAdmin, *Report) bool { return unanswered.Load() > 40 })
	if !r.Held() || r.Load.GivenUp > 0 || unanswered.Load() <= 40 {
		t.Errorf("held %v: %s; %d questions, load %+v, notes %v", r.Held(), r.Verdict(), unanswered.Load(), r.Load, r.Notes)
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
