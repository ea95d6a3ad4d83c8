package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Members are consumers of one group that commit after each poll, and one who asks for the group's offsets all the time:
// none goes back, and none is below what was acknowledged before it was asked for (J6). Errors are no breach: members
// of a group whose cluster is struck get some, and go on.
type Members struct {
	t     testing.TB
	group string
	topic string
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu        sync.Mutex
	seen      map[uint64]bool
	committed map[int32]int64
	commits   int
	answers   int
	errors    map[string]int
	breaches  []error
}

// StartMembers starts n members and the one who asks, until Stop.
func StartMembers(t testing.TB, seeds []string, group, topic string, n int, opts ...kgo.Opt) *Members {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	m := &Members{t: t, group: group, topic: topic, stop: cancel, seen: map[uint64]bool{}, committed: map[int32]int64{}, errors: map[string]int{}}
	t.Cleanup(m.Stop)
	for range n {
		cl, err := kgo.NewClient(append(append(ClientOptions(seeds),
			kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(500*time.Millisecond), kgo.SessionTimeout(10*time.Second),
			kgo.RebalanceTimeout(20*time.Second),
		), opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		m.wg.Go(func() {
			for ctx.Err() == nil {
				m.poll(ctx, cl)
			}
			cl.CloseAllowingRebalance()
		})
	}
	asks, err := kgo.NewClient(ClientOptions(seeds)...)
	if err != nil {
		t.Fatal(err)
	}
	m.wg.Go(func() { m.watch(ctx, kadm.NewClient(asks)); asks.Close() })
	return m
}

// Stop ends them all and waits for them.
func (m *Members) Stop() { m.stop(); m.wg.Wait() }

func (m *Members) poll(ctx context.Context, cl *kgo.Client) {
	defer cl.AllowRebalance()
	// It ends without records too, so that a commit that failed is tried again when nothing comes any more.
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	fetches := cl.PollFetches(bounded)
	cancel()
	m.mu.Lock()
	fetches.EachError(func(_ string, _ int32, err error) { m.failed("fetch", err) })
	fetches.EachRecord(func(r *kgo.Record) {
		id, err := PayloadID(r.Value)
		if err != nil {
			m.breaches = append(m.breaches, fmt.Errorf("group %s: %s/%d offset %d: %w", m.group, m.topic, r.Partition, r.Offset, err))
		}
		m.seen[id] = true
	})
	m.mu.Unlock()
	if len(cl.UncommittedOffsets()) == 0 {
		return
	}
	bounded, cancel = context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	err := cl.CommitUncommittedOffsets(bounded)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failed("commit", err)
		return
	}
	m.commits++
	for p, at := range cl.CommittedOffsets()[m.topic] {
		m.committed[p] = max(m.committed[p], at.Offset)
	}
}

func (m *Members) failed(what string, err error) {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		m.errors[what+": "+err.Error()]++
	}
}

// Acknowledged is up to where commits were acknowledged, and how many.
func (m *Members) Acknowledged() (map[int32]int64, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[int32]int64{}
	for p, at := range m.committed {
		out[p] = at
	}
	return out, m.commits
}

func (m *Members) watch(ctx context.Context, adm *kadm.Client) {
	last := map[int32]int64{}
	for ctx.Err() == nil {
		least, _ := m.Acknowledged()
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		got, err := adm.FetchOffsets(bounded, m.group)
		cancel()
		if err == nil {
			m.compare(got, least, last)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (m *Members) compare(got kadm.OffsetResponses, least, last map[int32]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers++
	for p, want := range least {
		o, ok := got.Lookup(m.topic, p)
		if ok && o.Err != nil {
			continue
		}
		if !ok || o.At < want || o.At < last[p] {
			m.breaches = append(m.breaches, fmt.Errorf("J6: group %s: %s/%d: committed is %d (there: %v), acknowledged were %d, seen were %d", m.group, m.topic, p, o.At, ok, want, last[p]))
		}
		last[p] = max(last[p], o.At)
	}
}

// Reached returns nil if commits up to the ends were acknowledged, and every record of acks was delivered.
func (m *Members) Reached(ends map[int32]int64, acks []Ack) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, end := range ends {
		if m.committed[p] < end {
			return fmt.Errorf("group %s: %s/%d is committed up to %d of %d; errors: %v", m.group, m.topic, p, m.committed[p], end, m.errors)
		}
	}
	for _, a := range acks {
		if !m.seen[a.ID] {
			return fmt.Errorf("group %s: record %d at %d/%d was never delivered", m.group, a.ID, a.Range, a.Offset)
		}
	}
	return nil
}

// Breaches are those so far.
func (m *Members) Breaches() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]error(nil), m.breaches[:min(len(m.breaches), 10)]...)
}

// Counts are how many commits were acknowledged, answers with offsets came, and errors the members got.
func (m *Members) Counts() (commits, answers, errs int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.errors {
		errs += n
	}
	return m.commits, m.answers, errs
}
