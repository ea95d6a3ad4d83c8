package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// scenario is what one client does, told as lines; against kfake, the oracle, it must tell the same.
type scenario struct {
	name string
	run  func(*side)
}

// side is a scenario on one of the two.
type side struct {
	t     *testing.T
	ctx   context.Context
	seeds []string
	// newest is what the client knows: a release before topic ids, or after.
	newest *kversion.Versions
	told   []string
}

func (s *side) tell(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

func (s *side) client(opts ...kgo.Opt) *kgo.Client {
	return newClient(s.t, s.seeds, append(opts, kgo.MaxVersions(s.newest))...)
}

// id finds the present id of a topic; none for a client from before there were any.
func (s *side) id(topic string) [16]byte {
	s.t.Helper()
	found, err := kadm.NewClient(s.client()).ListTopics(s.ctx, topic)
	if err != nil || !found.Has(topic) {
		s.t.Fatalf("topic %s: %v", topic, err)
	}
	return found[topic].ID
}

// word is an error as a client names it.
func word(err error) string {
	var ke *kerr.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &ke):
		return ke.Message
	}
	return err.Error()
}

func idempotentID(ctx context.Context, cl *kgo.Client) (int64, int16, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, 0, err
	}
	return resp.ProducerID, resp.ProducerEpoch, kerr.ErrorForCode(resp.ErrorCode)
}

func TestOracle_SameAsKfake(t *testing.T) { runScenarios(t, scenarios) }

// runScenarios compares the two sides, which both serve Kafka 4.1; the client knows it, or nothing newer than 2.4, which is
// from before there were topic ids.
func runScenarios(t *testing.T, list []scenario) {
	for client, newest := range map[string]*kversion.Versions{"2.4": kversion.V2_4_0(), "4.1": kversion.V4_1_0()} {
		for _, sc := range list {
			t.Run(client+"/"+sc.name, func(t *testing.T) {
				oracle, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(1), kfake.AllowAutoTopicCreation(), kfake.MaxVersions(kversion.V4_1_0()))
				if err != nil {
					t.Fatal(err)
				}
				defer oracle.Close()
				ours := newFakeCluster(t, 1, nil)
				run := func(seeds []string) []string {
					s := &side{t: t, ctx: testContext(t), seeds: seeds, newest: newest}
					sc.run(s)
					return s.told
				}
				compare(t, run(oracle.ListenAddrs()), run(ours.seeds()))
			})
		}
	}
}

func compare(t *testing.T, want, got []string) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		w, g := "(nothing)", "(nothing)"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			t.Errorf("line %d\n  kfake: %s\n  vtop:  %s", i, w, g)
		}
	}
}
