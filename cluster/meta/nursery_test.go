package meta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// nursery runs births of one seed: nodes that take one step at a time, calls that get lost before or after they
// had their effect, power cuts at any operation of a disk, disks that are lost. Only Raft is left out: a node
// 'acts' under a cluster where it would start Raft.
type nursery struct {
	t      *testing.T
	rng    *rand.Rand
	nodes  []*infant
	byAddr map[string]*infant
	join   []string
	expect int
	faulty bool
	trace  []string
	acted  map[string]map[string]bool // cluster → storage ids of founders that acted
	births map[string]*birth
	// anyDisk: the disks of nodes that are not in join count among those that may be lost; any may found.
	anyDisk bool
	nested  bool
}

type infant struct {
	n       *nursery
	name    vtop.NodeName
	addr    string
	join    []string
	storage vtop.StorageID
	server  string
	fs      *vfs.CrashFS
	starts  vtop.Incarnation
	meta    *Meta
	cutAt   int // power is cut at this many changing operations from now; 0 for never
}

func newNursery(t *testing.T, seed uint64, names string, joiners int, expect int) *nursery {
	n := &nursery{
		t: t, rng: rand.New(rand.NewPCG(seed, 77)), byAddr: map[string]*infant{}, expect: expect, faulty: true,
		acted: map[string]map[string]bool{}, births: map[string]*birth{},
	}
	for i, name := range strings.Fields(names) {
		k := &infant{n: n, name: vtop.NodeName(name), addr: fmt.Sprintf("10.0.0.%d:9640", i+1)}
		n.nodes, n.byAddr[k.addr] = append(n.nodes, k), k
		k.wipe()
	}
	for _, k := range n.nodes[len(n.nodes)-joiners:] {
		n.join = append(n.join, k.addr)
	}
	return n
}

func (n *nursery) uuid() (u vtop.UUID) {
	for i := range u {
		u[i] = byte(n.rng.Uint32())
	}
	return u
}

func (n *nursery) say(format string, args ...any) {
	n.trace = append(n.trace, fmt.Sprintf(format, args...))
}

func (n *nursery) fail(format string, args ...any) {
	n.t.Helper()
	n.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(n.trace, "\n"))
}

func (k *infant) wipe() {
	k.meta = nil
	k.storage, k.fs = k.n.uuid(), vfs.NewCrashFS(k.n.rng.Uint64())
	k.server = fmt.Sprintf("%s/%08x", k.name, k.n.rng.Uint32())
	k.starts = 0
}

// start brings the process up on what its disk holds.
func (k *infant) start() {
	k.starts++
	k.cutAt = 0
	k.fs.SetHook(k.hook)
	who := NewWho(k.name, k.storage, k.starts)
	join := k.n.join
	if k.join != nil {
		join = k.join
	}
	m := &Meta{
		cfg: Config{
			Who: who, Boot: k.n.uuid(), FS: k.fs, Join: join, BootstrapExpect: k.n.expect,
			Addresses: fsm.Addresses{Peer: k.addr}, Peers: wire{k.n, k, transport.Self{Name: k.name, Storage: k.storage}}, Machine: fsm.New(fsm.Options{}),
		},
		log: hclog.NewNullLogger(), nudge: make(chan struct{}, 1), caughtUp: newLatch(),
	}
	m.machine = m.cfg.Machine
	m.setStatus("")
	m.stores.Store(&stores{serverID: raft.ServerID(k.server)})
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	var err error
	if m.born, err = openBorn(k.fs, "/meta"); err != nil {
		k.n.fail("%s does not open: %v", k.name, err)
	}
	if m.book, err = openBook(k.fs, "/meta"); err != nil {
		k.n.fail("%s does not open its book: %v", k.name, err)
	}
	who.update(func(s *transport.Self) { s.ServerID = k.server })
	k.meta = m
	if k.n.faulty && k.n.rng.IntN(4) == 0 {
		k.cutAt = 1 + k.n.rng.IntN(12)
	}
}

func (k *infant) hook(op vfs.Op) error {
	if !op.Kind.Changes() || k.cutAt == 0 {
		return nil
	}
	if k.cutAt--; k.cutAt == 0 {
		return vfs.ErrPowerCut
	}
	return nil
}

// crash takes the process down; what was not synced may be lost.
func (k *infant) crash() {
	k.meta = nil
	k.fs = k.fs.CrashClone(k.n.rng, vfs.AnyPolicy(k.n.rng))
}

// wire carries calls of one node in this process.
type wire struct {
	n    *nursery
	from *infant
	self transport.Self
}

// call finds the other end; before says that the call is lost on the way, after that the answer is.
func (w wire) call(addr string) (k *infant, after bool, err error) {
	w.n.between(w.from)
	k = w.n.byAddr[addr]
	if k == nil || k.meta == nil || w.from.meta == nil || w.n.faulty && w.n.rng.IntN(8) == 0 {
		return nil, false, transport.ErrUnreachable
	}
	mine, theirs := w.from.meta.born.get().Cluster, k.meta.born.get().Cluster
	if mine != "" && theirs != "" && mine != theirs {
		return nil, false, transport.ErrWrongCluster
	}
	return k, w.n.faulty && w.n.rng.IntN(8) == 0, nil
}

// between lets another node take a whole step while a call is on its way.
func (n *nursery) between(from *infant) {
	if !n.faulty || n.nested || n.rng.IntN(5) > 0 {
		return
	}
	n.nested = true
	defer func() { n.nested = false }()
	if k := n.nodes[n.rng.IntN(len(n.nodes))]; k != from && k.meta != nil {
		k.step()
	}
}

func (w wire) Identify(ctx context.Context, to transport.Target, req *peerpb.IdentifyRequest) (*peerpb.IdentifyResponse, error) {
	k, lost, err := w.call(to.Addr)
	if err != nil {
		return nil, err
	}
	resp, err := handler{k.meta}.Identify(ctx, transport.Caller{Self: w.self}, req)
	if lost {
		return nil, vtop.ErrTimeout
	}
	return resp, err
}

func (w wire) Pledge(ctx context.Context, to transport.Target, req *peerpb.PledgeRequest) (*peerpb.PledgeResponse, error) {
	k, lost, err := w.call(to.Addr)
	if err != nil {
		return nil, err
	}
	resp, err := handler{k.meta}.Pledge(ctx, transport.Caller{Self: w.self}, req)
	if err != nil {
		w.n.say("%s loses power while it pledges: %v", k.name, err)
		k.crash()
		return nil, vtop.ErrTimeout
	}
	w.n.say("%s asks %s to pledge to %x: %v %s", w.from.name, k.name, req.GetClusterId()[:2], resp.GetGranted(), resp.GetReason())
	if lost {
		return nil, vtop.ErrTimeout
	}
	return resp, nil
}

func (wire) Join(context.Context, transport.Target, *peerpb.JoinRequest) (*peerpb.JoinResponse, error) {
	return nil, transport.ErrUnimplemented
}

func (wire) Propose(context.Context, transport.Target, *peerpb.ProposeRequest) (*peerpb.ProposeResponse, error) {
	return nil, transport.ErrUnimplemented
}

func (wire) ReadIndex(context.Context, transport.Target, *peerpb.ReadIndexRequest) (*peerpb.ReadIndexResponse, error) {
	return nil, transport.ErrUnimplemented
}

// step is one round of findCluster, and what follows it.
func (k *infant) step() {
	m := k.meta
	if m.born.get().Cluster == "" {
		answers := m.targets()
		for i := range answers {
			if !answers[i].self {
				answers[i].resp, answers[i].err = m.ask(m.ctx, transport.Target{Addr: answers[i].addr})
			}
		}
		if m.markSelf(answers); k.meta != m {
			return // lost power meanwhile
		}
		if err := m.birthStep(answers, &complain{log: m.log, every: time.Hour}); err != nil {
			if !errors.Is(err, vtop.ErrStorage) && !errors.Is(err, errPledged) {
				k.n.fail("%s: %v", k.name, err)
			}
			k.n.say("%s loses power: %v", k.name, err)
			if k.meta == m {
				k.crash()
			}
			return
		}
	}
	if k.meta != m {
		return
	}
	k.act()
	for _, id := range k.n.alive() {
		if m.born.get().Cluster == id {
			m.caughtUp.set() // its Raft leader answers
		}
	}
	_ = m.book.save()
}

// act notes that the node would start Raft now.
func (k *infant) act() {
	st := k.meta.born.get()
	if st.Cluster == "" || !st.Founder {
		return
	}
	f := k.meta.asMember()
	if !st.Pledge.has(f) {
		return
	}
	if k.n.acted[st.Cluster] == nil {
		k.n.acted[st.Cluster] = map[string]bool{}
	}
	if !k.n.acted[st.Cluster][f.Storage] {
		k.n.say("%s acts under %s", k.name, st.Cluster[:4])
	}
	k.n.acted[st.Cluster][f.Storage] = true
	k.n.births[st.Cluster] = st.Pledge
}

// alive are the clusters of which a majority of founding disks act and are still there.
func (n *nursery) alive() (out []string) {
	for id, b := range n.births {
		live := 0
		for _, f := range b.Members {
			for _, k := range n.nodes {
				if k.storage.String() == f.Storage && n.acted[id][f.Storage] {
					live++
				}
			}
		}
		if live > len(b.Members)/2 {
			out = append(out, id)
		}
	}
	return out
}

func (n *nursery) check() {
	n.t.Helper()
	if c := n.alive(); len(c) > 1 {
		n.fail("two living clusters: %v", c)
	}
}

// run plays a seed: wipes is the number of disks of --join that may be lost, the others may be lost at will.
func (n *nursery) run(steps, wipes int) {
	for range steps {
		k := n.nodes[n.rng.IntN(len(n.nodes))]
		switch r := n.rng.IntN(100); {
		case k.meta == nil:
			k.start()
		case r < 4:
			n.say("%s is killed", k.name)
			k.crash()
		case r < 7:
			if n.anyDisk || slices.Contains(n.join, k.addr) {
				if wipes == 0 {
					continue
				}
				wipes--
			}
			n.say("%s loses its disk", k.name)
			k.wipe()
		default:
			k.step()
		}
		n.check()
	}
	n.faulty = false
	for range 40 {
		for _, k := range n.nodes {
			if k.meta == nil {
				k.start()
			}
			k.cutAt = 0
		}
		for _, k := range n.nodes {
			if k.meta != nil {
				k.step()
			}
		}
		n.check()
	}
}
