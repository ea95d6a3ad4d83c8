//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
)

// groupWork is what the members of a consumer group did together: which records were delivered, and up to where commits were
// acknowledged.
type groupWork struct {
	t     *testing.T
	seeds []string
	group string
	topic string

	mu        sync.Mutex
	seen      map[uint64]bool
	committed map[int32]int64
	commits   int

	hung atomic.Bool // a node is paused, or was
}

// fails notes an error that reached a member.
func (w *groupWork) fails(what string, err error) {
	var session *kgo.ErrGroupSession
	var code *kerr.Error
	if errors.As(err, &session) && !errors.As(err, &code) {
		return // franz-go's remark that a connection broke while it joined; it goes on by itself
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		// franz-go gives up when it twice happens to ask the node that was killed, of all nodes, for the coordinator.
		w.t.Logf("%s: %v", what, err)
		return
	}
	var timeout interface{ Timeout() bool }
	if w.hung.Load() && errors.As(err, &timeout) && timeout.Timeout() {
		w.t.Logf("%s: %v", what, err)
		return
	}
	w.t.Errorf("%s: %v", what, err)
}

// member runs one consumer that commits after each poll, until stop, which waits for it. No error may reach it but that its
// group is sharing anew.
func (w *groupWork) member(opts ...kgo.Opt) (stop func()) {
	cl, err := kgo.NewClient(append([]kgo.Opt{ // the timing of an ordinary client
		kgo.SeedBrokers(w.seeds...), kgo.RequestTimeoutOverhead(3 * time.Second),
		kgo.ConsumerGroup(w.group), kgo.ConsumeTopics(w.topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(500 * time.Millisecond), kgo.SessionTimeout(45 * time.Second),
		kgo.RebalanceTimeout(20 * time.Second),
	}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			w.poll(ctx, cl)
		}
		cl.CloseAllowingRebalance()
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	return stop
}

func (w *groupWork) poll(ctx context.Context, cl *kgo.Client) {
	defer cl.AllowRebalance()
	fetches := cl.PollFetches(ctx)
	fetches.EachError(func(topic string, p int32, err error) {
		if !errors.Is(err, context.Canceled) {
			w.fails(fmt.Sprintf("fetch %s/%d", topic, p), err)
		}
	})
	records := fetches.Records()
	if len(records) == 0 {
		return
	}
	w.mu.Lock()
	for _, r := range records {
		id, err := harness.PayloadID(r.Value)
		if err != nil {
			w.t.Errorf("%s/%d at %d: %v", w.topic, r.Partition, r.Offset, err)
		}
		w.seen[id] = true
	}
	w.mu.Unlock()
	err := cl.CommitRecords(context.WithoutCancel(ctx), records...)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.commits++
		for _, r := range records {
			w.committed[r.Partition] = max(w.committed[r.Partition], r.Offset+1)
		}
	case errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.IllegalGeneration):
		w.t.Logf("commit while the group shares anew: %v", err)
	default:
		w.fails("commit", err)
	}
}

// acknowledged is up to where commits were acknowledged, and how many.
func (w *groupWork) acknowledged() (map[int32]int64, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[int32]int64{}
	for p, at := range w.committed {
		out[p] = at
	}
	return out, w.commits
}

// missing names a record that was not delivered.
func (w *groupWork) missing(acks []harness.Ack) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range acks {
		if !w.seen[a.ID] {
			return fmt.Errorf("record %d of %d was not delivered", a.ID, len(acks))
		}
	}
	return nil
}

// waitMore waits until more commits have been acknowledged.
func (w *groupWork) waitMore(c *harness.Cluster, n int) {
	w.t.Helper()
	start := time.Now()
	defer func() { w.t.Logf("%d commits after %s", n, time.Since(start).Round(time.Millisecond)) }()
	_, before := w.acknowledged()
	c.Eventually(60*time.Second, "commits", func() error {
		if _, now := w.acknowledged(); now < before+n {
			return fmt.Errorf("%d of %d", now-before, n)
		}
		return nil
	})
}

// watch asks for the group's offsets all the time: none goes back (J6), and none is below what was acknowledged before it was asked
// for. Whether the quorum or the coordinator is there is no matter: then there is no answer.
func (w *groupWork) watch(adm *kadm.Client) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	answers := make(chan int, 1)
	go func() {
		last, n := map[int32]int64{}, 0
		for ctx.Err() == nil {
			least, _ := w.acknowledged()
			got, err := adm.FetchOffsets(ctx, w.group)
			if err != nil {
				continue
			}
			n++
			for p, want := range least {
				o, ok := got.Lookup(w.topic, p)
				if !ok || o.At < want || o.At < last[p] {
					w.t.Errorf("%s/%d: committed is %d (there: %v), acknowledged were %d, seen were %d", w.topic, p, o.At, ok, want, last[p])
				}
				last[p] = max(last[p], o.At)
			}
		}
		answers <- n
	}()
	return func() int { cancel(); return <-answers }
}

// coordinatorOf is the node that coordinates a group now.
func coordinatorOf(t *testing.T, c *harness.Cluster, adm *kadm.Client, group string) (found *harness.Node) {
	t.Helper()
	c.Eventually(30*time.Second, "coordinator of "+group, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r := adm.FindGroupCoordinators(ctx, group)[group]
		if r.Err != nil {
			return r.Err
		}
		for _, n := range c.Nodes {
			if n.Runs() && n.Kafka == fmt.Sprintf("%s:%d", r.Host, r.Port) {
				found = n
				return nil
			}
		}
		return fmt.Errorf("%s:%d is no running node", r.Host, r.Port)
	})
	return found
}

// TestGroup_CoordinatorDies: two members read what a producer writes while their coordinator is killed, stopped and paused. No member
// sees an error, no acknowledged commit is lost or goes back, and every record is delivered.
func TestGroup_CoordinatorDies(t *testing.T) {
	protocols := map[string][]kgo.Opt{
		"classic":  nil,
		"static":   nil,
		"consumer": {kgo.ServerSideBalancer()},
	}
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
			createTopic(t, c, "work", 6, 3)
			ledger := harness.StartLedger(t, c.Bootstrap(), "work", harness.LedgerOptions{Ranges: 6, Size: 64, InFlight: 64, PerSecond: 1000})
			w := &groupWork{t: t, seeds: c.Bootstrap(), group: "team", topic: "work", seen: map[uint64]bool{}, committed: map[int32]int64{}}
			one, two := opts, opts
			if name == "static" {
				one, two = []kgo.Opt{kgo.InstanceID("one")}, []kgo.Opt{kgo.InstanceID("two")}
			}
			w.member(one...)
			second := w.member(two...)
			w.waitMore(c, 20)
			adm := admin(t, c)
			stopWatch := w.watch(adm)

			// Case: the coordinator is killed.
			victim := coordinatorOf(t, c, adm, "team")
			victim.Kill()
			w.waitMore(c, 20)
			victim.Start()
			victim.WaitReady()

			// Case: it stops in an orderly way.
			victim = coordinatorOf(t, c, adm, "team")
			victim.Stop(30 * time.Second)
			w.waitMore(c, 20)
			victim.Start()
			victim.WaitReady()

			// Case: it is killed while a member leaves and another comes.
			victim = coordinatorOf(t, c, adm, "team")
			gone := make(chan struct{})
			go func() { defer close(gone); second() }()
			victim.Kill()
			if name == "static" {
				<-gone // or the newcomer would throw it out, as it should
			}
			w.member(two...)
			<-gone
			w.waitMore(c, 20)
			victim.Start()
			victim.WaitReady()

			// Case: it hangs until another has its slots, and wakes up believing that it has them. What is sent to a process that
			// hangs has no answer but the client's own time-out.
			victim = coordinatorOf(t, c, adm, "team")
			w.hung.Store(true)
			victim.Pause()
			c.Eventually(60*time.Second, "another coordinator", func() error {
				if coordinatorOf(t, c, adm, "team") == victim {
					return errors.New("still the one that hangs")
				}
				return nil
			})
			victim.Resume()
			w.waitMore(c, 20)

			acks := ledger.Stop(60 * time.Second)
			c.Eventually(60*time.Second, "every record delivered", func() error { return w.missing(acks) })
			answers := stopWatch()
			if answers < 20 {
				t.Errorf("only %d answers with offsets: nothing was looked at", answers)
			}
			_, commits := w.acknowledged()
			t.Logf("%d records delivered, %d commits, %d answers with offsets", len(acks), commits, answers)
		})
	}
}
