package drill

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// fakeAdmin is a cluster of three nodes over kfake's records: what it tells of leases it makes up.
type fakeAdmin struct {
	t     *testing.T
	kafka *kfake.Cluster

	mu      sync.Mutex
	topics  map[string]int
	epochs  []int32
	holders []string
	lives   map[string]uint64
	// down are nodes that were struck, with how many more times somebody must look until they are back.
	down   map[string]int
	absent int
	most   int // struck at the same time
	calls  []string

	allow   bool
	unsafe  bool
	twoHold bool
	verdict string
	onDrill func()
}

var fakeNames = []string{"n1", "n2", "n3"}

func newFake(t *testing.T) *fakeAdmin {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return &fakeAdmin{
		t: t, kafka: k, topics: map[string]int{}, lives: map[string]uint64{"n1": 1, "n2": 1, "n3": 1}, down: map[string]int{}, absent: 3, allow: true,
		verdict: adminapi.ScrubOK,
	}
}

// config is a drill of a second that strikes as often as it can.
func (f *fakeAdmin) config(kind string) Config {
	cfg := Config{Kind: kind, Duration: time.Second, Interval: 100 * time.Millisecond, Patience: time.Minute, Pause: 10 * time.Millisecond, Ranges: 2, PerSecond: 1000, Bootstrap: f.kafka.ListenAddrs()}
	if err := cfg.Check(); err != nil {
		f.t.Fatal(err)
	}
	return cfg
}

func (f *fakeAdmin) call(name string) { f.calls = append(f.calls, name) }

func (f *fakeAdmin) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.countLocked(name)
}

func (f *fakeAdmin) countLocked(name string) (n int) {
	for _, c := range f.calls {
		if c == name {
			n++
		}
	}
	return n
}

func (f *fakeAdmin) Status(context.Context) (*adminapi.Status, error) {
	return &adminapi.Status{ClusterID: "7f0c", Ready: true, Node: "n1"}, nil
}

// Nodes brings those that are down nearer to their return.
func (f *fakeAdmin) Nodes(context.Context) ([]adminapi.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []adminapi.Node
	for _, name := range fakeNames {
		if f.down[name] > 0 {
			if f.down[name]--; f.down[name] == 0 {
				f.lives[name]++
			}
		}
		up := f.down[name] == 0
		out = append(out, adminapi.Node{Name: name, State: "active", Alive: up, AllowsDrills: up && f.allow, Incarnation: f.lives[name], AdminAddr: name})
	}
	return out, nil
}

func (f *fakeAdmin) CreateTopic(_ context.Context, req adminapi.CreateTopic) (*adminapi.TopicDetail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call("create")
	f.topics[req.Name] = req.Ranges
	kreq := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = req.Name, int32(req.Ranges), 1
	kreq.Topics = append(kreq.Topics, topic)
	cl, err := (&runner{seeds: f.kafka.ListenAddrs()}).client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if _, err := kreq.RequestWith(context.Background(), cl); err != nil {
		return nil, err
	}
	for n := range req.Ranges {
		f.epochs, f.holders = append(f.epochs, 1), append(f.holders, fakeNames[n%3])
	}
	return &adminapi.TopicDetail{Topic: adminapi.Topic{Name: req.Name, Ranges: req.Ranges, Replicas: req.Replicas}}, nil
}

func (f *fakeAdmin) DeleteTopic(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call("delete")
	delete(f.topics, name)
	return nil
}

func (f *fakeAdmin) Leases(context.Context, string) ([]adminapi.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []adminapi.Lease
	for n := range f.epochs {
		l := adminapi.Lease{Range: int32(n), Holder: f.holders[n], Epoch: f.epochs[n], State: "serving"}
		for i, name := range fakeNames {
			r := adminapi.Replica{Node: name, Role: "voter", State: "following", ReplicaID: uint64(i + 1)}
			if name == l.Holder {
				r.State = "leading"
			}
			if f.down[name] > 0 {
				r.State = "offline"
			}
			l.Replicas = append(l.Replicas, r)
		}
		if f.down[l.Holder] > 0 {
			l.State = "unavailable"
		}
		out = append(out, l)
	}
	return out, nil
}

func (f *fakeAdmin) Lease(ctx context.Context, topic string, n int32) (*adminapi.LeaseDetail, error) {
	all, err := f.Leases(ctx, topic)
	if err != nil {
		return nil, err
	}
	d := &adminapi.LeaseDetail{Lease: all[n], Changes: []adminapi.LeaseChange{{Epoch: all[n].Epoch, Holder: all[n].Holder}}}
	if f.twoHold {
		d.Changes[0].Holder = "n9"
	}
	return d, nil
}

func (f *fakeAdmin) TransferLease(_ context.Context, _ string, n int32, to string) (*adminapi.LeaseDetail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call("transfer")
	f.epochs[n]++
	f.holders[n] = to
	return &adminapi.LeaseDetail{}, nil
}

func (f *fakeAdmin) SafeToStop(_ context.Context, node string) (*adminapi.SafeToStop, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call("safe")
	s := &adminapi.SafeToStop{Node: node, Safe: !f.unsafe}
	if f.unsafe {
		s.Reasons = []adminapi.Reason{{Subject: "orders/0", Message: "n3 is behind"}}
	}
	return s, nil
}

func (f *fakeAdmin) Drill(_ context.Context, node adminapi.Node, req adminapi.DrillRequest) (*adminapi.DrillResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call(req.Fault)
	if f.countLocked("safe") == 0 {
		f.t.Errorf("%s was struck and nobody asked whether it is safe to stop", node.Name)
	}
	f.down[node.Name] = f.absent
	struck := 0
	for _, left := range f.down {
		if left > 0 {
			struck++
		}
	}
	f.most = max(f.most, struck)
	if f.onDrill != nil {
		f.onDrill()
	}
	return &adminapi.DrillResult{Node: node.Name, InMS: 50}, nil
}

func (f *fakeAdmin) SubmitRepairs(context.Context, adminapi.RepairRequest) ([]adminapi.Repair, error) {
	return nil, errors.New("not asked for")
}
func (f *fakeAdmin) Repair(context.Context, uint64) (*adminapi.Repair, error) {
	return nil, errors.New("not asked for")
}
func (f *fakeAdmin) CancelRepair(context.Context, uint64) (*adminapi.Repair, error) {
	return nil, errors.New("not asked for")
}

func (f *fakeAdmin) Seal(context.Context, string, int32, adminapi.SealRequest) (*adminapi.SealResult, error) {
	return &adminapi.SealResult{}, nil
}

func (f *fakeAdmin) Scrub(_ context.Context, _ adminapi.ScrubRequest, found func(adminapi.ScrubVerdict) error) (*adminapi.ScrubSummary, error) {
	var err error
	for _, node := range fakeNames {
		v := adminapi.ScrubVerdict{Range: "t/0", Node: node, Verdict: adminapi.ScrubOK}
		if node == "n3" {
			v.Verdict, v.Reason = f.verdict, "root differs"
		}
		err = errors.Join(err, found(v))
	}
	return &adminapi.ScrubSummary{}, err
}

func run(t *testing.T, f *fakeAdmin, cfg Config) *Report {
	t.Helper()
	r, err := Run(context.Background(), cfg, f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// drilled runs drills of growing length until one is enough: what a second suffices for alone may take a busy machine many. edit
// changes the fake and the drill, if it isn't nil.
func drilled(t *testing.T, kind string, edit func(*fakeAdmin, *Config), enough func(*fakeAdmin, *Report) bool) (*fakeAdmin, *Report) {
	t.Helper()
	for d := time.Second; ; d *= 4 {
		f := newFake(t)
		cfg := f.config(kind)
		if cfg.Duration = d; edit != nil {
			edit(f, &cfg)
		}
		if r := run(t, f, cfg); enough(f, r) || d > time.Minute {
			return f, r
		}
	}
}

func blows(n int) func(*fakeAdmin, *Report) bool {
	return func(_ *fakeAdmin, r *Report) bool { return len(r.Blows) >= n }
}

func checkNamed(r *Report, name string) Check {
	return r.Checks[slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == name })]
}

func TestRun_HoldsAndLeavesNothingBehind(t *testing.T) {
	for _, kind := range []string{"leader-kill", "leader-transfer", "node-restart", "leader-pause"} {
		t.Run(kind, func(t *testing.T) {
			f, r := drilled(t, kind, nil, blows(2))
			if !r.Held() || len(r.Blows) < 2 || r.Load.Acked < warmUp || r.Load.Read != r.Load.Acked {
				t.Errorf("held %v: %s; %d blows, load %+v, failures %v, checks %+v", r.Held(), r.Verdict(), len(r.Blows), r.Load, r.Failures, r.Checks)
			}
			if f.most > 1 {
				t.Errorf("%d nodes were struck at once, nobody asked for that", f.most)
			}
			if len(f.topics) > 0 || f.count("delete") != 1 || r.Kept {
				t.Errorf("left behind: %v", f.topics)
			}
			for i, b := range r.Blows {
				last := i == len(r.Blows)-1 // the load may end before it is acknowledged anything after this one
				if b.WholeMS < 0 || b.DownMS < 0 && !last {
					t.Errorf("blow %+v", b)
				}
			}
		})
	}
}

func TestRun_RefusedWhereNoNodeAllowsIt(t *testing.T) {
	f := newFake(t)
	f.allow = false
	_, err := Run(context.Background(), f.config("leader-kill"), f)
	var refusal *adminapi.Error
	if !errors.As(err, &refusal) || refusal.Code != adminapi.CodeNotAllowed || !strings.Contains(refusal.Message, "--allow-drills") {
		t.Fatalf("got %v", err)
	}
	if f.count("create") > 0 {
		t.Error("a topic was made for a drill that was refused")
	}
	if _, r := drilled(t, "leader-transfer", func(f *fakeAdmin, _ *Config) { f.allow = false }, blows(1)); !r.Held() {
		t.Errorf("a drill that needs no help: %s", r.Verdict())
	}
}

func TestRun_NeverStrikesWhatIsNotSafe(t *testing.T) {
	f, r := drilled(t, "leader-kill", func(f *fakeAdmin, cfg *Config) {
		f.unsafe = true
		cfg.Patience = 100 * time.Millisecond
	}, func(_ *fakeAdmin, r *Report) bool { return len(r.Notes) > 0 })
	if f.count(adminapi.DrillKill) > 0 || len(r.Blows) > 0 || r.Held() {
		t.Errorf("struck %d times, held %v", f.count(adminapi.DrillKill), r.Held())
	}
	if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "orders/0: n3 is behind") }) {
		t.Errorf("the reason is not told: %v", r.Notes)
	}
}

func TestRun_SeveralAtOnceOnlyIfTold(t *testing.T) {
	f, r := drilled(t, "leader-kill", func(_ *fakeAdmin, cfg *Config) { cfg.AtOnce = 2 }, blows(2))
	if f.most != 2 || !r.Held() {
		t.Errorf("%d at once, want 2: %s", f.most, r.Verdict())
	}
}

// The end of the context is Ctrl-C: no other blow falls, what was struck is waited for, and all is checked.
func TestRun_InterruptHealsAndChecks(t *testing.T) {
	f := newFake(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f.absent, f.onDrill = 10, cancel
	cfg := f.config("leader-kill")
	cfg.Duration = time.Minute // it ends long before
	r, err := Run(ctx, cfg, f)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Interrupted || !r.Held() || len(r.Blows) != 1 || r.Blows[0].WholeMS < 0 || f.count(adminapi.DrillKill) != 1 {
		t.Errorf("interrupted %v, held %v (%s), blows %+v", r.Interrupted, r.Held(), r.Verdict(), r.Blows)
	}
	if len(f.topics) > 0 {
		t.Errorf("left behind: %v", f.topics)
	}
}

// A node that answers is not awake again, but not asleep yet: the next blow waits until the pause is over.
func TestRun_PauseLastsUntilItIsOver(t *testing.T) {
	_, r := drilled(t, "leader-pause", func(f *fakeAdmin, cfg *Config) {
		f.absent = 0
		cfg.Pause = 300 * time.Millisecond
	}, blows(1))
	for _, b := range r.Blows {
		if b.WholeMS < 350 {
			t.Errorf("whole %d ms after a pause of 300 ms that begins 50 ms after the answer", b.WholeMS)
		}
	}
	if !r.Held() {
		t.Error(r.Verdict())
	}
}

func TestRun_NodeThatStaysAwayFailsTheDrill(t *testing.T) {
	_, r := drilled(t, "leader-kill", func(f *fakeAdmin, cfg *Config) {
		f.absent = 1 << 30
		cfg.Patience, cfg.Pause = 300*time.Millisecond, time.Millisecond
	}, blows(1))
	if r.Held() || len(r.Blows) != 1 || !strings.Contains(strings.Join(r.Failures, ""), "has not come back") {
		t.Errorf("held %v, blows %+v, failures %v", r.Held(), r.Blows, r.Failures)
	}
}

// The drill itself is tested: a cluster that breaks a promise is found out, and its topic is kept.
func TestRun_FindsPlantedBreaches(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(*fakeAdmin)
		check string
	}{
		"acknowledged and not written": {func(f *fakeAdmin) { f.loseOneBatch() }, K1},
		"two holders":                  {func(f *fakeAdmin) { f.twoHold = true }, K6},
		"a replica differs":            {func(f *fakeAdmin) { f.verdict = adminapi.ScrubBad }, K5},
	} {
		t.Run(name, func(t *testing.T) {
			f, r := drilled(t, "leader-transfer", func(f *fakeAdmin, cfg *Config) {
				c.plant(f)
				cfg.Patience = 5 * time.Second // what is lost does not come
			}, func(_ *fakeAdmin, r *Report) bool { return !r.Held() })
			if got := checkNamed(r, c.check); got.Held || got.Count == 0 || r.Held() {
				t.Errorf("%s: %+v", c.check, got)
			}
			if len(f.topics) != 1 || !r.Kept {
				t.Error("the topic that shows it is gone")
			}
		})
	}
}

// loseOneBatch has kfake acknowledge one batch, after some good ones, that it does not write. The client goes on behind it.
func (f *fakeAdmin) loseOneBatch() {
	seen := 0
	f.kafka.ControlKey(0, func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.kafka.KeepControl()
		if seen++; seen != 20 {
			return nil, nil, false
		}
		preq := req.(*kmsg.ProduceRequest)
		resp := preq.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range preq.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.BaseOffset = p.Partition, 1_000_000
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

func TestConfig_SaysWhatMakesNoSense(t *testing.T) {
	for want, cfg := range map[string]Config{
		"there is no drill":      {Kind: "nonsense"},
		"up to 1m0s":             {Kind: "repair", Pause: time.Hour},
		"at once":                {Kind: "repair", AtOnce: -1},
		"ranges":                 {Kind: "repair", Ranges: 1000},
		"records of":             {Kind: "repair", Size: 3},
		"a second: want":         {Kind: "repair", PerSecond: -1},
		"that a drill remembers": {Kind: "repair", Duration: 100 * time.Hour},
		"want times above 0":     {Kind: "repair", Interval: -1},
	} {
		if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	cfg := Config{Kind: "repair"}
	if err := cfg.Check(); err != nil || cfg.Duration != 2*time.Minute || cfg.Interval != 10*time.Second || cfg.AtOnce != 1 {
		t.Errorf("defaults: %+v, %v", cfg, err)
	}
}
