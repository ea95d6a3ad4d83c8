//go:build cluster

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
)

// churn is administrators at work: leases are moved, tails sealed, replicas repaired and moved to other nodes, topics
// created, written to and deleted. What is refused or fails while the cluster is struck is counted, and no breach.
type churn struct {
	w      *world
	rng    *rand.Rand
	cancel context.CancelFunc
	wg     sync.WaitGroup
	made   []string // topics that may be there
	did    map[string]int
	failed map[string]int
	moved  bool
}

// brief names a topic of the churn. Names are of one round only: a topic is not made again here.
func brief(round, n int) string { return fmt.Sprintf("brief-%d-%d", round, n) }

func (w *world) startChurn(r round) *churn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &churn{w: w, rng: r.rng(1), cancel: cancel, did: map[string]int{}, failed: map[string]int{}}
	c.wg.Go(func() { c.work(ctx, r.number) })
	return c
}

func (c *churn) work(ctx context.Context, number int) {
	for n := 0; ctx.Err() == nil; n++ {
		what, err := c.act(ctx, number, n)
		if c.did[what]++; err != nil {
			c.failed[what]++
		}
		pause(ctx, 200*time.Millisecond+time.Duration(c.rng.Int64N(int64(800*time.Millisecond))))
	}
}

func (c *churn) act(ctx context.Context, number, n int) (what string, err error) {
	topic := topics[c.rng.IntN(len(topics))]
	index := c.rng.Int32N(map[string]int32{exact: exactRanges, plain: plainRanges, trim: trimRanges}[topic])
	node := c.w.c.Nodes[c.rng.IntN(nodes)].Name
	dice, brokers := c.rng.IntN(10), c.rng.Perm(nodes)[:3]
	running := c.w.c.Running()
	if len(running) == 0 {
		return "nothing", nil
	}
	at, place := running[c.rng.IntN(len(running))], topic+"/"+strconv.Itoa(int(index))
	switch {
	case dice < 4:
		return "lease transfer", ctl(at, 10*time.Second, "lease", "transfer", place, "--to", node)
	case dice < 6:
		return "seal", ctl(at, 10*time.Second, "seal", place)
	case dice < 7:
		return "repair", ctl(at, 15*time.Second, "repair", place, "--node", node)
	case dice < 8 && !c.moved:
		c.moved = true
		return "reassignment", c.reassign(ctx, topic, index, brokers)
	default:
		return "topic", c.briefTopic(ctx, brief(number, n))
	}
}

// reassign has a range on three nodes of the four, whichever it is on.
func (c *churn) reassign(ctx context.Context, topic string, index int32, on []int) error {
	lines, err := c.w.c.NodeLines()
	if err != nil {
		return err
	}
	var brokers []int32
	for _, i := range on {
		for _, l := range lines {
			if l.Name == c.w.c.Nodes[i].Name {
				brokers = append(brokers, l.ID)
			}
		}
	}
	if len(brokers) != len(on) {
		return fmt.Errorf("nodes are %+v", lines)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, index, brokers)
	rs, err := c.w.adm.AlterPartitionAssignments(ctx, req)
	if err != nil {
		return err
	}
	return rs[topic][index].Err
}

// briefTopic makes a topic, writes some records and deletes it.
func (c *churn) briefTopic(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c.made = append(c.made, name)
	if resp, err := c.w.adm.CreateTopic(ctx, 2, 3, nil, name); err != nil || resp.Err != nil {
		return fmt.Errorf("create %s: %v, %v", name, err, resp.Err)
	}
	client, err := kgo.NewClient(append(harness.ClientOptions(c.w.c.Bootstrap()), kgo.DefaultProduceTopic(name))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for id := range uint64(20) {
		if err := client.ProduceSync(ctx, &kgo.Record{Value: harness.Payload(id+1, 128)}).FirstErr(); err != nil {
			return err
		}
	}
	_, err = c.w.adm.DeleteTopic(ctx, name)
	return err
}

// stop ends the work and deletes what it left.
func (c *churn) stop() error {
	c.cancel()
	c.wg.Wait()
	return harness.Within(calm, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		there, err := c.w.adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(slices.Clone(c.made), func(name string) bool { return !there.Has(name) })
		if len(left) == 0 {
			return nil
		}
		_, err = c.w.adm.DeleteTopics(ctx, left...)
		return fmt.Errorf("topics %v are still there (%v)", left, err)
	})
}

func (c *churn) String() string {
	out := ""
	for _, what := range []string{"lease transfer", "seal", "repair", "reassignment", "topic"} {
		out += fmt.Sprintf(" %s %d (%d failed)", what, c.did[what], c.failed[what])
	}
	return "churn:" + out
}
