package drill

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/transport/adminapi"
)

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

// What waiting does not bring is refused at once: a topic that is not there, nodes that are not there.
func TestRun_RefusedWhatCannotCome(t *testing.T) {
	for name, ask := range map[string]func(*Config){
		"no topic":      func(c *Config) { c.Topic = "nope" },
		"too few nodes": func(c *Config) { c.Replicas = len(fakeNames) + 1 },
	} {
		f := newFake(t)
		cfg := f.config("leader-transfer")
		cfg.Patience = 2 * time.Second
		ask(&cfg)
		_, err := Run(context.Background(), cfg, f)
		var refusal *adminapi.Error
		if !errors.As(err, &refusal) || refusal.Code != adminapi.CodeConflict || refusal.Hint == "" {
			t.Errorf("%s: got %v, want a refusal with a hint", name, err)
		}
		if f.count("create") > 0 {
			t.Errorf("%s: a topic was made for a drill that was refused", name)
		}
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
