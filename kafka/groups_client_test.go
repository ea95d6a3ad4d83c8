package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/fsm"
)

// groupLedger is what the members of a group did together.
type groupLedger struct {
	t  testing.TB
	mu sync.Mutex
	// seen counts how often each record was delivered; committed is the highest offset of each range whose commit was acknowledged.
	seen      map[string]int
	committed map[int32]int64
	wake      chan struct{}
}

func newGroupLedger(t testing.TB) *groupLedger {
	return &groupLedger{t: t, seen: map[string]int{}, committed: map[int32]int64{}, wake: make(chan struct{}, 1)}
}

func (l *groupLedger) distinct() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

// await waits until n records have been seen.
func (l *groupLedger) await(n int) {
	l.t.Helper()
	deadline := time.After(hangs)
	for l.distinct() < n {
		select {
		case <-l.wake:
		case <-deadline:
			l.t.Fatalf("%d of %d records delivered", l.distinct(), n)
		}
	}
}

// member runs a consumer that commits what it got after each poll, until stop, which waits for it. No error may reach it.
func (l *groupLedger) member(seeds []string, group, topic string, opts ...kgo.Opt) (stop func()) {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.HeartbeatInterval(50 * time.Millisecond), kgo.SessionTimeout(time.Minute), kgo.RebalanceTimeout(time.Minute),
	}, opts...)...)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			l.poll(ctx, cl)
		}
		cl.CloseAllowingRebalance()
	}()
	return sync.OnceFunc(func() { cancel(); <-done })
}

func (l *groupLedger) poll(ctx context.Context, cl *kgo.Client) {
	defer cl.AllowRebalance()
	fetches := cl.PollFetches(ctx)
	fetches.EachError(func(topic string, p int32, err error) {
		if !errors.Is(err, context.Canceled) {
			l.t.Errorf("fetch %s/%d: %v", topic, p, err)
		}
	})
	records := fetches.Records()
	if len(records) == 0 {
		return
	}
	l.mu.Lock()
	for _, r := range records {
		l.seen[string(r.Value)]++
	}
	l.mu.Unlock()
	if err := cl.CommitRecords(context.WithoutCancel(ctx), records...); err != nil && !errors.Is(err, kerr.RebalanceInProgress) {
		l.t.Errorf("commit: %v", err)
	} else if err == nil {
		l.mu.Lock()
		for _, r := range records {
			l.committed[r.Partition] = max(l.committed[r.Partition], r.Offset+1)
		}
		l.mu.Unlock()
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// check wants the group's offsets at or above everything that was acknowledged.
func (l *groupLedger) check(adm *kadm.Client, group, topic string) {
	l.t.Helper()
	got, err := adm.FetchOffsets(testContext(l.t), group)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, want := range l.committed {
		if o, ok := got.Lookup(topic, p); !ok || o.At < want {
			l.t.Errorf("%s/%d: committed %d, acknowledged were %d", topic, p, o.At, want)
		}
	}
}

func produceNumbered(t testing.TB, seeds []string, topic string, from, to int) {
	t.Helper()
	cl := newClient(t, seeds, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	var records []*kgo.Record
	for i := from; i < to; i++ {
		records = append(records, &kgo.Record{Value: fmt.Appendf(nil, "%d", i)})
	}
	if err := cl.ProduceSync(testContext(t), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// TestGroups_MembersShareCommitDieAndResume: two members, one dies, the coordinator moves while they work, a third goes on from what
// was committed.
func TestGroups_MembersShareCommitDieAndResume(t *testing.T) {
	cases := []struct {
		name string
		opts []kgo.Opt
	}{
		{"range", []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}},
		{"cooperative sticky", nil},
		{"static members", []kgo.Opt{}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := newFakeCluster(t, 3, nil)
			c.topic("t", 6)
			l, seeds := newGroupLedger(t), c.seeds()
			named := func(id string) []kgo.Opt {
				if tc.name != "static members" {
					return tc.opts
				}
				return append([]kgo.Opt{kgo.InstanceID(id)}, tc.opts...)
			}
			first := l.member(seeds, "g", "t", named("a")...)
			defer first()
			second := l.member(seeds, "g", "t", named("b")...)
			defer second()
			produceNumbered(t, seeds, "t", 0, 200)
			l.await(200)
			for range 3 { // the coordinator moves under them
				old := c.coordinator("g")
				c.moveSlot(fsm.GroupSlot("g"), c.other(old).name)
				at := l.distinct()
				produceNumbered(t, seeds, "t", at, at+50)
				l.await(at + 50)
			}
			second()
			produceNumbered(t, seeds, "t", 350, 400)
			third := l.member(seeds, "g", "t", named("b")...)
			defer third()
			l.await(400)
			first()
			third()
			adm := kadm.NewClient(newClient(t, seeds))
			l.check(adm, "g", "t")
		})
	}
}

func TestGroups_AdminSeesAndChanges(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	c.topic("t", 2)
	ctx, seeds := testContext(t), c.seeds()
	adm := kadm.NewClient(newClient(t, seeds))
	// A consumer that assigns by itself commits without being a member.
	var simple kadm.Offsets
	simple.Add(kadm.Offset{Topic: "t", Partition: 0, At: 5, LeaderEpoch: 1, Metadata: "why"})
	simple.Add(kadm.Offset{Topic: "t", Partition: 7, At: 5, LeaderEpoch: -1})
	simple.Add(kadm.Offset{Topic: "none", Partition: 0, At: 5, LeaderEpoch: -1})
	resps, err := adm.CommitOffsets(ctx, "simple", simple)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		topic string
		p     int32
		err   error
	}{{"t", 0, nil}, {"t", 7, kerr.UnknownTopicOrPartition}, {"none", 0, kerr.UnknownTopicOrPartition}} {
		if r, ok := resps.Lookup(want.topic, want.p); !ok || !errors.Is(r.Err, want.err) {
			t.Errorf("commit of %s/%d: %+v, want %v", want.topic, want.p, r, want.err)
		}
	}
	got, err := adm.FetchOffsets(ctx, "simple")
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := got.Lookup("t", 0); !ok || o.At != 5 || o.LeaderEpoch != 1 || o.Metadata != "why" || len(got) != 1 {
		t.Errorf("fetched %+v", got)
	}

	l := newGroupLedger(t)
	stop := l.member(seeds, "real", "t")
	defer stop()
	produceNumbered(t, seeds, "t", 0, 10)
	l.await(10)
	listed, err := adm.ListGroups(ctx)
	if err != nil || len(listed) != 2 || listed["real"].State != "Stable" || listed["simple"].State != "Empty" || listed["real"].ProtocolType != "consumer" || listed["real"].Coordinator < 0 {
		t.Errorf("listed %+v, %v", listed, err)
	}
	described, err := adm.DescribeGroups(ctx, "real", "simple", "none")
	if err != nil {
		t.Fatal(err)
	}
	real := described["real"]
	if len(real.Members) != 1 || real.State != "Stable" || real.Members[0].ClientID != "kgo" || real.Members[0].ClientHost != "/127.0.0.1" {
		t.Errorf("described %+v", real)
	} else if a, ok := real.Members[0].Assigned.AsConsumer(); !ok || len(a.Topics) != 1 || len(a.Topics[0].Partitions) != 2 {
		t.Errorf("assigned %+v", a)
	}
	if d := described["none"]; !errors.Is(d.Err, kerr.GroupIDNotFound) && d.State != "Dead" {
		t.Errorf("a group that is not there: %+v", d)
	}

	// What is in use is not taken away.
	if r, err := adm.DeleteGroup(ctx, "real"); !errors.Is(r.Err, kerr.NonEmptyGroup) && !errors.Is(err, kerr.NonEmptyGroup) {
		t.Errorf("deletion of a group with members: %+v, %v", r, err)
	}
	set := kadm.TopicsSet{}
	set.Add("t", 0)
	if r, err := adm.DeleteOffsets(ctx, "real", set); err != nil || !errors.Is(r["t"][0], kerr.GroupSubscribedToTopic) {
		t.Errorf("deletion of offsets in use: %v, %v", r, err)
	}
	if r, err := adm.DeleteOffsets(ctx, "simple", set); err != nil || r["t"][0] != nil {
		t.Errorf("deletion of offsets: %v, %v", r, err)
	}
	if got, err := adm.FetchOffsets(ctx, "simple"); err != nil || len(got) != 0 {
		t.Errorf("after the deletion: %+v, %v", got, err)
	}
	stop()
	if _, err := adm.DeleteGroup(ctx, "real"); err != nil {
		t.Errorf("deletion: %v", err)
	}
	if r, err := adm.DeleteGroup(ctx, "real"); !errors.Is(r.Err, kerr.GroupIDNotFound) && !errors.Is(err, kerr.GroupIDNotFound) {
		t.Errorf("second deletion: %+v, %v", r, err)
	}
	if got, err := adm.FetchOffsets(ctx, "real"); err != nil || len(got) != 0 {
		t.Errorf("offsets of a deleted group: %+v, %v", got, err)
	}
}

// TestGroups_TopicDeletedTakesItsOffsets: a topic made again under the name of a deleted one begins without offsets.
func TestGroups_TopicDeletedTakesItsOffsets(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	id := c.topic("t", 1)[0].Topic
	ctx := testContext(t)
	adm := kadm.NewClient(newClient(t, c.seeds()))
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: "t", At: 7, LeaderEpoch: -1})
	if _, err := adm.CommitOffsets(ctx, "g", o); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes[0].DeleteTopic(ctx, id); err != nil {
		t.Fatal(err)
	}
	c.topic("t", 1)
	got, err := adm.FetchOffsetsForTopics(ctx, "g", "t")
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := got.Lookup("t", 0); ok && at.At != -1 {
		t.Errorf("the new topic begins at %+v", at)
	}
}
