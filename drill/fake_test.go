package drill

import (
	"context"
	"errors"
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

func (f *fakeAdmin) Leases(_ context.Context, topic string) ([]adminapi.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.topics[topic]; topic != "" && !ok {
		return nil, adminapi.Errorf(adminapi.CodeNotFound, "there is no topic %q", topic)
	}
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
