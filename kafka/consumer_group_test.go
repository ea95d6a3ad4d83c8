package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
)

// groupWatch sees what all members of a group are given and what they read.
type groupWatch struct {
	t testing.TB

	mu     sync.Mutex
	holder map[string]string // who was given a partition, and has not given it up
	read   map[string]map[string]int
	moved  chan struct{} // closed and replaced whenever something happens
}

func watchGroup(t testing.TB) *groupWatch {
	return &groupWatch{t: t, holder: map[string]string{}, read: map[string]map[string]int{}, moved: make(chan struct{})}
}

// change notes something under the lock.
func (w *groupWatch) change(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
	close(w.moved)
	w.moved = make(chan struct{})
}

// until waits for ok, which is called under the lock.
func (w *groupWatch) until(ctx context.Context, what string, ok func() bool) {
	w.t.Helper()
	for {
		w.mu.Lock()
		done, moved := ok(), w.moved
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			w.t.Fatalf("waiting until %s: %v; holders %v", what, ctx.Err(), w.holder)
		}
	}
}

func (w *groupWatch) given(member string, tps map[string][]int32) {
	w.change(func() {
		for topic, ps := range tps {
			for _, p := range ps {
				key := fmt.Sprintf("%s/%d", topic, p)
				if other := w.holder[key]; other != "" && other != member {
					w.t.Errorf("%s is given to %s while %s has it", key, member, other)
				}
				w.holder[key] = member
			}
		}
	})
}

func (w *groupWatch) taken(member string, tps map[string][]int32) {
	w.change(func() {
		for topic, ps := range tps {
			for _, p := range ps {
				if key := fmt.Sprintf("%s/%d", topic, p); w.holder[key] == member {
					delete(w.holder, key)
				}
			}
		}
	})
}

// held counts the partitions of a member.
func (w *groupWatch) heldLocked(member string) (n int) {
	for _, m := range w.holder {
		if m == member {
			n++
		}
	}
	return n
}

// readLocked counts the different records that were read by anybody.
func (w *groupWatch) readLocked() int { return len(w.read) }

// member starts a member of the group; stop has it leave, and waits until it did.
func (w *groupWatch) member(name string, seeds []string, opts ...kgo.Opt) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var leaves atomic.Bool
	cl := newClient(w.t, seeds, append([]kgo.Opt{
		kgo.ConsumerGroup("g"), kgo.ServerSideBalancer(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ClientID(name),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, tps map[string][]int32) { w.given(name, tps) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, tps map[string][]int32) {
			if err := cl.CommitUncommittedOffsets(ctx); err != nil {
				w.t.Errorf("%s: commit of what is revoked: %v", name, err)
			}
			w.taken(name, tps)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, tps map[string][]int32) { w.taken(name, tps) }),
		kgo.AutoCommitInterval(100_000_000), kgo.FetchMaxWait(100_000_000),
		kgo.AutoCommitCallback(func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			w.committed(name, resp, err, leaves.Load())
		}),
	}, opts...)...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			fetches := cl.PollFetches(ctx)
			if ctx.Err() != nil {
				return
			}
			fetches.EachError(func(topic string, p int32, err error) { w.t.Errorf("%s: fetch %s/%d: %v", name, topic, p, err) })
			w.change(func() {
				for _, rec := range fetches.Records() {
					if w.read[string(rec.Value)] == nil {
						w.read[string(rec.Value)] = map[string]int{}
					}
					w.read[string(rec.Value)][name]++
				}
			})
		}
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
		leaves.Store(true)
		cl.Close()
	})
}

// committed looks at what a commit came to. One that is tried again while its member leaves is broken off, and tells what it was
// tried again for; the member's last commit is another.
func (w *groupWatch) committed(name string, resp *kmsg.OffsetCommitResponse, err error, leaves bool) {
	if err != nil {
		if ctxErr := context.Canceled; err != ctxErr {
			w.t.Errorf("%s: commit: %v", name, err)
		}
		return
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !(leaves && kerr.IsRetriable(err)) {
				w.t.Errorf("%s: commit of %s/%d: %v", name, t.Topic, p.Partition, err)
			}
		}
	}
}

// stable waits until the group has come to rest, as its coordinator sees it, and describes it.
func (c *fakeCluster) stable(ctx context.Context, id string) (d group.ConsumerDescription) {
	c.t.Helper()
	eventually(c.t, "the group is stable", func() (ok bool) {
		var err error
		d, err = c.coordinator(id).groups.ConsumerDescribe(ctx, id)
		return err == nil && d.State == "Stable"
	})
	return d
}

// put produces n records with values of their own.
func put(t testing.TB, cl *kgo.Client, from, n int) {
	t.Helper()
	ctx := testContext(t)
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, kgo.StringRecord(strconv.Itoa(from+i)))
	}
	if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// TestConsumerGroup_MembersShare: franz-go, unmodified: members come, share, leave, and nothing is lost or read by two.
func TestConsumerGroup_MembersShare(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	c.topic("t", 6)
	producer := newClient(t, c.seeds(), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	put(t, producer, 0, 100)
	w, ctx := watchGroup(t), testContext(t)
	stopA := w.member("a", c.seeds(), kgo.ConsumeTopics("t"))
	w.until(ctx, "a reads all", func() bool { return w.heldLocked("a") == 6 && w.readLocked() == 100 })

	stopB := w.member("b", c.seeds(), kgo.ConsumeTopics("t"))
	w.until(ctx, "both have half", func() bool { return w.heldLocked("a") == 3 && w.heldLocked("b") == 3 })
	put(t, producer, 100, 100)
	w.until(ctx, "both read the rest", func() bool { return w.readLocked() == 200 })
	if d := c.stable(ctx, "g"); len(d.Members) != 2 || d.Assignor != "uniform" {
		t.Errorf("the group is %+v: is this the new protocol?", d)
	}
	stopA()
	w.until(ctx, "b has all", func() bool { return w.heldLocked("b") == 6 })
	put(t, producer, 200, 100)
	w.until(ctx, "b reads the rest", func() bool { return w.readLocked() == 300 })
	stopB()
	// Case: what was committed is not read again.
	stopC := w.member("c", c.seeds(), kgo.ConsumeTopics("t"))
	put(t, producer, 300, 6)
	w.until(ctx, "c reads what is new", func() bool { return w.readLocked() == 306 })
	stopC()
	w.mu.Lock()
	defer w.mu.Unlock()
	for value, by := range w.read {
		if n, _ := strconv.Atoi(value); by["c"] > 0 && n < 300 {
			t.Errorf("record %s, which was committed, is read again: %v", value, by)
		}
	}
}

// TestConsumerGroup_CoordinatorMoves: members and their ranges stay as they are, and the application hears of nothing.
func TestConsumerGroup_CoordinatorMoves(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	c.topic("t", 6)
	producer := newClient(t, c.seeds(), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	w, ctx := watchGroup(t), testContext(t)
	opts := []kgo.Opt{kgo.ConsumeTopics("t"), kgo.RetryBackoffFn(shortBackoff), kgo.RequestRetries(10_000)}
	stopA := w.member("a", c.seeds(), opts...)
	stopB := w.member("b", c.seeds(), opts...)
	defer stopB()
	defer stopA()
	w.until(ctx, "both have half", func() bool { return w.heldLocked("a") == 3 && w.heldLocked("b") == 3 })
	before := c.stable(ctx, "g")
	for round := range 5 {
		c.moveSlot(fsm.GroupSlot("g"), c.other(c.coordinator("g")).name)
		put(t, producer, round*60, 60)
		w.until(ctx, "all is read", func() bool { return w.readLocked() == (round+1)*60 })
		eventually(t, "the new coordinator has the group as it was", func() bool {
			now, err := c.coordinator("g").groups.ConsumerDescribe(ctx, "g")
			return err == nil && now.Epoch == before.Epoch && now.State == "Stable" && len(now.Members) == 2 &&
				slices.Equal(now.Members[0].Assigned, before.Members[0].Assigned)
		})
	}
	// Case: the next coordinator leads the members through a change, too.
	c.moveSlot(fsm.GroupSlot("g"), c.other(c.coordinator("g")).name)
	stopA()
	w.until(ctx, "b has all", func() bool { return w.heldLocked("b") == 6 })
}

// TestConsumerGroup_RegexAndNewTopics: topics that come later are given out without a word of the client.
func TestConsumerGroup_RegexAndNewTopics(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("orders-1", 2)
	w, ctx := watchGroup(t), testContext(t)
	stop := w.member("a", c.seeds(), kgo.ConsumeRegex(), kgo.ConsumeTopics("^orders-"), kgo.MetadataMaxAge(200_000_000))
	defer stop()
	w.until(ctx, "a has the first topic", func() bool { return w.heldLocked("a") == 2 })
	c.topic("orders-2", 3)
	c.topic("others", 3)
	w.until(ctx, "a has the second", func() bool { return w.heldLocked("a") == 5 })
	d, err := c.coordinator("g").groups.ConsumerDescribe(ctx, "g")
	if err != nil || len(d.Members) != 1 || d.Members[0].Regex == "" || len(d.Members[0].Assigned) != 5 {
		t.Errorf("the group is %+v, %v: want a member with an expression and 5 ranges", d, err)
	}
}

// TestConsumerGroup_StaticMemberRestarts: its ranges wait for it.
func TestConsumerGroup_StaticMemberRestarts(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 4)
	w, ctx := watchGroup(t), testContext(t)
	opts := []kgo.Opt{kgo.ConsumeTopics("t")}
	stopA := w.member("a", c.seeds(), append(opts, kgo.InstanceID("i"))...)
	stopB := w.member("b", c.seeds(), opts...)
	defer stopB()
	w.until(ctx, "both have half", func() bool { return w.heldLocked("a") == 2 && w.heldLocked("b") == 2 })
	before := c.stable(ctx, "g")
	stopA()
	stopA = w.member("a", c.seeds(), append(opts, kgo.InstanceID("i"))...)
	defer stopA()
	w.until(ctx, "a is back", func() bool { return w.heldLocked("a") == 2 })
	after, err := c.coordinator("g").groups.ConsumerDescribe(ctx, "g")
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || after.Epoch != before.Epoch || len(after.Members) != 2 || w.heldLocked("b") != 2 {
		t.Errorf("after the restart: %+v, %v; want epoch %d as before", after, err, before.Epoch)
	}
}
