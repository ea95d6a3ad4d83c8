//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

const churnTopic, churnRanges = "work", 24

var errWentBack = errors.New("a committed offset went back")

// churnTime is how long members come and go: VTOP_CHURN (2m), else as long as CI can wait.
func churnTime(t *testing.T) time.Duration {
	text := os.Getenv("VTOP_CHURN")
	if text == "" {
		return 40 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("VTOP_CHURN: %v", err)
	}
	return d
}

// churnGroup is a group whose members come and go: what was delivered to it, and the committed offsets that any answer of any
// node has shown or acknowledged.
type churnGroup struct {
	t     *testing.T
	name  string
	seeds []string
	opts  []kgo.Opt

	commits, answers, shared, unreached, lives atomic.Int64

	mu    sync.Mutex
	seen  map[uint64]bool
	least map[int32]int64 // no answer to a question asked from now on may be below this
}

// live is one life of a member that commits after each poll; it leaves the group when ctx ends.
func (g *churnGroup) live(ctx context.Context) {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(g.seeds...), kgo.ConsumerGroup(g.name), kgo.ConsumeTopics(churnTopic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(time.Second), kgo.SessionTimeout(30 * time.Second),
		kgo.RebalanceTimeout(30 * time.Second),
	}, g.opts...)...)
	if err != nil {
		g.t.Error(err)
		return
	}
	g.lives.Add(1)
	for ctx.Err() == nil {
		g.poll(ctx, cl)
	}
	cl.CloseAllowingRebalance()
}

func (g *churnGroup) poll(ctx context.Context, cl *kgo.Client) {
	defer cl.AllowRebalance()
	fetches := cl.PollFetches(ctx)
	fetches.EachError(func(topic string, p int32, err error) {
		if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			g.hears(fmt.Sprintf("poll (%s/%d)", topic, p), err)
		}
	})
	records := fetches.Records()
	if len(records) == 0 {
		return
	}
	upTo := map[int32]int64{}
	g.mu.Lock()
	for _, r := range records {
		id, err := harness.PayloadID(r.Value)
		if err != nil {
			g.t.Errorf("%s: %s/%d at %d: %v", g.name, churnTopic, r.Partition, r.Offset, err)
		}
		g.seen[id] = true
		upTo[r.Partition] = r.Offset + 1
	}
	g.mu.Unlock()
	if err := g.commit(context.WithoutCancel(ctx), cl, records); err != nil {
		g.hears("commit", err)
		return
	}
	g.commits.Add(1)
	g.raise(upTo)
}

// commit tries again where nothing was reached: franz-go retries what it sends to a coordinator, but gives up at once if it happens to ask
// the killed node for the coordinator while that is down. No answer of any node is behind such an error.
func (g *churnGroup) commit(ctx context.Context, cl *kgo.Client, records []*kgo.Record) (err error) {
	for range 10 {
		err = cl.CommitRecords(ctx, records...)
		if dial, ok := errors.AsType[*net.OpError](err); !ok || dial.Op != "dial" {
			return err
		}
		g.unreached.Add(1)
		time.Sleep(200 * time.Millisecond) // as an application does
	}
	return err
}

// hears judges an error that reached an application: it may be none but that the group is sharing anew.
func (g *churnGroup) hears(what string, err error) {
	var session *kgo.ErrGroupSession
	var code *kerr.Error
	switch {
	case errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.StaleMemberEpoch):
		g.shared.Add(1)
	case errors.As(err, &session) && !errors.As(err, &code):
		g.t.Logf("%s: %s: %v (a connection broke while it joined: the client goes on)", g.name, what, err)
	default:
		g.t.Errorf("%s: %s: %v", g.name, what, err)
	}
}

func (g *churnGroup) raise(offsets map[int32]int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, at := range offsets {
		g.least[p] = max(g.least[p], at)
	}
}

func (g *churnGroup) floor() map[int32]int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[int32]int64, len(g.least))
	for p, at := range g.least {
		out[p] = at
	}
	return out
}

// asks looks at the committed offsets by way of one node. What comes back is held against all that anybody was told before the
// question was asked; that it isn't the coordinator, or that none can be reached, is no answer.
func (g *churnGroup) asks(by string, fetch func() (map[int32]int64, error)) error {
	least := g.floor()
	got, err := fetch()
	if err != nil {
		return err
	}
	g.answers.Add(1)
	g.raise(got)
	for p, want := range least {
		if at, ok := got[p]; !ok || at < want {
			return fmt.Errorf("%w: %s: %s says that %s/%d is committed up to %d (there: %v), after %d was acknowledged or shown", errWentBack, g.name, by, churnTopic, p, at, ok, want)
		}
	}
	return nil
}

// overKafka asks one node itself: only the coordinator answers.
func overKafka(cl *kgo.Client, group string) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrOffsetFetchRequest()
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group = group
	req.Groups = append(req.Groups, one)
	kresp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.OffsetFetchResponse)
	if len(resp.Groups) != 1 {
		return nil, fmt.Errorf("%d groups in the answer", len(resp.Groups))
	}
	if err := kerr.ErrorForCode(resp.Groups[0].ErrorCode); err != nil {
		return nil, err
	}
	out := map[int32]int64{}
	for _, topic := range resp.Groups[0].Topics {
		for _, p := range topic.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			out[p.Partition] = p.Offset
		}
	}
	return out, nil
}

// overAdmin asks the admin port of a node, which shows what that node has applied: it may be a moment behind.
func overAdmin(n *harness.Node, group string) (map[int32]int64, error) {
	var detail adminapi.GroupDetail
	if err := n.Get("/v1/group?id="+url.QueryEscape(group), &detail); err != nil {
		return nil, err
	}
	out := map[int32]int64{}
	for _, o := range detail.CommittedDetail {
		out[o.Range] = o.Offset
	}
	return out, nil
}

// observe asks every node about the groups all the time, until stop.
func observe(t *testing.T, c *harness.Cluster, groups ...*churnGroup) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.OffsetFetch.Int16(), 8) // many groups in a request, topics by name
	for _, n := range c.Nodes {
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Kafka), kgo.MaxVersions(versions), kgo.DialTimeout(2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		wg.Go(func() {
			for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				for _, g := range groups {
					if err := g.asks(n.Name, func() (map[int32]int64, error) { return overKafka(cl, g.name) }); errors.Is(err, errWentBack) {
						t.Error(err)
					}
				}
			}
		})
	}
	return sync.OnceFunc(func() { cancel(); wg.Wait() })
}

// complete waits until every acknowledged record was delivered to the group and its committed offsets are the ends of the ranges.
func (g *churnGroup) complete(c *harness.Cluster, acks []harness.Ack) {
	g.t.Helper()
	ends := map[int32]int64{}
	for _, a := range acks {
		ends[a.Range] = max(ends[a.Range], a.Offset+1)
	}
	c.Eventually(2*time.Minute, g.name+": everything delivered and committed", func() error {
		at := g.floor()
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, a := range acks {
			if !g.seen[a.ID] {
				return fmt.Errorf("record %d of %d, at %d/%d, was not delivered; committed there is %d", a.ID, len(acks), a.Range, a.Offset, at[a.Range])
			}
		}
		for p, end := range ends {
			if at[p] < end {
				return fmt.Errorf("%d is committed up to %d of %d", p, at[p], end)
			}
		}
		return nil
	})
}

// conclude has every node show the group's offsets as they are in the end, and says what was looked at.
func (g *churnGroup) conclude(c *harness.Cluster) {
	g.t.Helper()
	for _, n := range c.Nodes {
		c.Eventually(20*time.Second, n.Name+" shows "+g.name, func() error {
			return g.asks("the admin port of "+n.Name, func() (map[int32]int64, error) { return overAdmin(n, g.name) })
		})
	}
	if g.answers.Load() < 50 || g.commits.Load() < 50 {
		g.t.Errorf("%s: %d answers with offsets and %d commits: nothing was looked at", g.name, g.answers.Load(), g.commits.Load())
	}
	g.t.Logf("%s: %d lives of members, %d commits, %d errors that were rebalances, %d commits that reached no node at first, %d answers with offsets",
		g.name, g.lives.Load(), g.commits.Load(), g.shared.Load(), g.unreached.Load(), g.answers.Load())
}

// TestGroup_Churn: fifty members come and go, half of them in a classic group and half in one of the consumer protocol, while a
// coordinator is killed every ten seconds. No committed offset goes back or is lost, whichever node is asked; every record is
// delivered at least once to each group; no application hears of anything but a rebalance.
func TestGroup_Churn(t *testing.T) {
	const members, every = 50, 10 * time.Second
	length := churnTime(t)
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, churnTopic, churnRanges, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), churnTopic, harness.LedgerOptions{Ranges: churnRanges, Size: 64, InFlight: 64, PerSecond: 400})
	groups := []*churnGroup{{name: "classic"}, {name: "consumer", opts: []kgo.Opt{kgo.ServerSideBalancer()}}}
	for _, g := range groups {
		g.t, g.seeds, g.seen, g.least = t, c.Bootstrap(), map[uint64]bool{}, map[int32]int64{}
	}
	stopObserver := observe(t, c, groups...)
	defer stopObserver()

	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var wg sync.WaitGroup
	for i := range members {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for ctx.Err() == nil {
				life, end := context.WithTimeout(ctx, time.Duration(2000+rng.IntN(18000))*time.Millisecond)
				groups[i%len(groups)].live(life)
				end()
			}
		})
	}
	adm, kills := admin(t, c), 0
	for tick := time.NewTicker(every); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			tick.Stop()
		case <-tick.C:
			victim := coordinatorOf(t, c, adm, groups[kills%len(groups)].name)
			victim.Kill()
			victim.Start()
			victim.WaitReady()
			kills++
		}
	}
	wg.Wait()

	// What the last of them left is read by two that stay, and nothing is struck any more.
	stay, leave := context.WithCancel(context.Background())
	var last sync.WaitGroup
	defer func() { leave(); last.Wait() }()
	for _, g := range groups {
		for range 2 {
			last.Go(func() { g.live(stay) })
		}
	}
	acks := ledger.Stop(60 * time.Second)
	for _, g := range groups {
		g.complete(c, acks)
	}
	stopObserver()
	for _, g := range groups {
		g.conclude(c)
	}
	if want := int(length/every) / 2; kills < max(want, 1) {
		t.Errorf("%d kills in %s", kills, length)
	}
	t.Logf("%d records in %s, %d kills", len(acks), length, kills)
}
