package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// strike carries out one event.
func (l *life) strike(ctx context.Context, e event) {
	h, other := l.hosts[e.host], l.hosts[e.other]
	l.trace.note("EVENT %s %s %s n=%d for %s", e.kind, h.name, other.name, e.n, e.dur)
	a, b := string(h.name), string(other.name)
	switch e.kind {
	case killAtOp, powerAtOp:
		l.dieAt(ctx, h, e, e.kind == powerAtOp)
	case killNow, powerNow:
		l.die(ctx, h, e.dur, e.kind == powerNow)
	case powerAll:
		for _, each := range l.hosts {
			l.die(ctx, each, e.dur/4, true)
		}
	case pause:
		h.freeze()
		l.later(ctx, e.dur, h.unfreeze)
	case cutOneWay:
		l.cut(ctx, e.dur, way{a, b})
	case cutPair:
		l.cut(ctx, e.dur, way{a, b}, way{b, a})
	case isolate:
		var ways []way
		for _, o := range l.hosts {
			ways = append(ways, way{a, string(o.name)}, way{string(o.name), a})
		}
		l.cut(ctx, e.dur, ways...)
	case slowDisk, syncError:
		l.disturb(ctx, h, e)
	case lagMetadata:
		h.setLag(time.Duration(e.n) * 20 * time.Millisecond)
		l.later(ctx, e.dur, func() { h.setLag(0) })
	case moveMetadata:
		l.ledger.depose(h)
	case moveLease:
		l.moveLease(ctx, e)
	case sealRange:
		l.seal(ctx, e)
	case stopHost:
		l.faults.Go(func() {
			h.stop()
			l.revive(ctx, h, e.dur)
		})
	case wipeHost:
		l.wipe(ctx, h, e)
	case repairRange:
		l.repair(ctx, e)
	}
}

// later undoes a fault after its time.
func (l *life) later(ctx context.Context, d time.Duration, fn func()) {
	l.faults.Go(func() {
		_ = sleep(ctx, d) // fn is to be called in any case
		fn()
	})
}

func (l *life) cut(ctx context.Context, d time.Duration, ways ...way) {
	l.oracle.add(func(c *counts) { c.cuts++ })
	set := func(on bool) {
		for _, w := range ways {
			if w.from != w.to {
				l.net.setCut(w.from, w.to, on)
			}
		}
	}
	set(true)
	l.later(ctx, d, func() { set(false) })
}

// dieAt has the process die in one of its next changing disk calls.
func (l *life) dieAt(ctx context.Context, h *host, e event, power bool) {
	p := h.running()
	if p == nil {
		return
	}
	died := make(chan struct{})
	p.disk.with(func() {
		if p.disk.dieIn == 0 {
			p.disk.dieIn, p.disk.died = e.n, func() { close(died) }
		}
	})
	l.faults.Go(func() {
		wait, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		select {
		case <-died:
			l.trace.note("%s: died in a disk call, power %v", h.name, power)
			l.oracle.add(func(c *counts) { c.kills++ })
			h.bring(p, power)
			l.revive(ctx, h, e.dur)
		case <-wait.Done():
			p.disk.with(func() { p.disk.dieIn = 0 })
		}
	})
}

// bring ends a process if it is still the one of the host.
func (h *host) bring(p *process, power bool) {
	h.mu.Lock()
	mine := h.proc == p
	h.mu.Unlock()
	if mine {
		h.kill(power)
	}
}

func (l *life) die(ctx context.Context, h *host, d time.Duration, power bool) {
	if h.running() == nil {
		return
	}
	l.oracle.add(func(c *counts) { c.kills++ })
	h.kill(power)
	l.faults.Go(func() { l.revive(ctx, h, d) })
}

// revive starts a host again, unless somebody else did.
func (l *life) revive(ctx context.Context, h *host, d time.Duration) {
	_ = sleep(ctx, d) // then it comes back in any case
	h.start()
}

func (l *life) disturb(ctx context.Context, h *host, e event) {
	p := h.running()
	if p == nil {
		return
	}
	if e.kind == syncError {
		p.disk.with(func() { p.disk.fail = true })
		return
	}
	p.disk.with(func() { p.disk.slow = time.Duration(e.n) * 8 * time.Millisecond })
	l.later(ctx, e.dur, func() { p.disk.with(func() { p.disk.slow = 0 }) })
}

// leader runs fn on the process that leads the metadata, as an operator's tool would find it.
func (l *life) leader(fn func(*process)) {
	for _, h := range l.hosts {
		if p := h.running(); p != nil && l.ledger.leads(p) {
			fn(p)
			return
		}
	}
}

func (l *life) moveLease(ctx context.Context, e event) {
	l.leader(func(p *process) {
		l.faults.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			epoch, err := p.control.Transfer(ctx, l.r(e.n%l.plan.ranges), l.hosts[e.host].name, 0)
			l.trace.note("transfer: epoch %d, %v", epoch, err)
		})
	})
}

// seal asks the leader of a range to close its tail, from another node.
func (l *life) seal(ctx context.Context, e event) {
	p := l.hosts[e.other].running()
	rg, ok := l.ledger.now().Range(l.r(e.n % l.plan.ranges))
	if p == nil || !ok || rg.Lease.Holder == "" {
		return
	}
	l.faults.Go(func() {
		resp, err := peers{p}.SealTail(ctx, rg.Lease.Holder, &peerpb.SealTailRequest{Range: transport.RangeTo(rg.ID), Epoch: int32(rg.Lease.Epoch), NoPin: true})
		l.trace.note("seal: %d records up to %d, %v", resp.GetRecordsSealed(), resp.GetSealedEnd(), err)
	})
}

// wipe replaces the disk of a host, if everything is whole: what is lost twice is lost.
func (l *life) wipe(ctx context.Context, h *host, e event) {
	if why := l.lossy(); why != "" {
		l.trace.note("no wipe: %s", why)
		return
	}
	if h.running() == nil {
		return
	}
	h.kill(true)
	h.wipe()
	l.faults.Go(func() { l.revive(ctx, h, e.dur) })
}

// lossy says why no more may be lost now: some replica is not whole, or was not for sure.
func (l *life) lossy() string {
	st := l.ledger.now()
	for i := range l.plan.ranges {
		rg, _ := st.Range(l.r(i))
		for _, rep := range rg.Replicas {
			p := l.process(rep.Node)
			if rep.Lost != "" || rep.Role != fsm.Voter || p == nil || p.store.Get(rg.ID) == nil || p.store.Get(rg.ID).Err() != nil ||
				p.store.Get(rg.ID).ReplicaID() != rep.ID || p.store.Get(rg.ID).Durable() < rg.Floor {
				return fmt.Sprintf("replica %d of range %d", rep.ID, i)
			}
		}
		if len(rg.Replicas) != wished(rg) {
			return fmt.Sprintf("range %d has %d replicas", i, len(rg.Replicas))
		}
	}
	for n := range st.Nodes() {
		if p := l.process(n.Name); p == nil || p.id.Storage != n.Storage {
			return fmt.Sprintf("%s is not itself", n.Name)
		}
	}
	return ""
}

// admit is the operator who lets a new disk take the place of an old one.
func (l *life) admit(ctx context.Context) {
	for n := range l.ledger.now().Nodes() {
		for _, claim := range n.Pending {
			l.leader(func(p *process) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				out, err := p.propose(ctx, &fsm.AdmitPending{Name: n.Name, Storage: claim.Storage, Reason: "its disk was replaced"})
				l.trace.note("admit %s: %v %v", n.Name, out.Refusal, err)
			})
		}
	}
}

// repair asks for a job, whether it makes sense or not: to any host, in nobody's place, in its own or in that of another host, from
// which it takes nothing while something is lost. What is accepted has to end.
func (l *life) repair(ctx context.Context, e event) {
	p := l.hosts[e.other].running()
	rg, ok := l.ledger.now().Range(l.r(e.n % l.plan.ranges))
	if p == nil || !ok {
		return
	}
	q := fsm.RepairRequest{
		Range: rg.ID, Destination: l.hosts[e.host].name, Origin: fsm.OriginOperator + fsm.RepairOrigin(e.n/2%4), Reason: "by the plan", SealTail: e.n%2 == 0,
	}
	if i := e.n % (len(l.hosts) + 1); i < len(l.hosts) {
		q.Replace = l.hosts[i].name
	}
	l.faults.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		out, err := p.propose(ctx, &fsm.SubmitRepairs{Items: []fsm.RepairRequest{q}})
		l.trace.note("repair of range %d to %s for %q: %+v %v", rg.ID.Index, q.Destination, q.Replace, out.Items, err)
	})
}

// compare is the end: what the leaders serve against what was acknowledged, and every replica against its leader's (K1, K2, K4, K5).
func (l *life) compare(ctx context.Context) {
	for i := range l.plan.ranges {
		var rg *fsm.Range
		var all map[vtop.Offset]string
		if !l.await(ctx, fmt.Sprintf("range %d to be read whole", i), time.Minute, func() (ok bool) {
			rg, _ = l.ledger.now().Range(l.r(i))
			all, ok = l.readAll(rg)
			return ok
		}) {
			return
		}
		l.oracle.settled(rg.ID, rg.LogStart, all)
		want := l.process(rg.Lease.Holder).store.Get(rg.ID)
		for _, rep := range rg.Replicas {
			if rep.Node != rg.Lease.Holder {
				l.same(rg, want, l.process(rep.Node), rep)
			}
		}
	}
	for job := range l.ledger.now().Repairs() {
		if job.Step == fsm.RepairDone {
			l.oracle.add(func(c *counts) { c.repairs++ })
		}
	}
}

// readAll reads a range as a client does; false if its lease moves meanwhile, as a lease may that returns home.
func (l *life) readAll(rg *fsm.Range) (out map[vtop.Offset]string, ok bool) {
	out = map[vtop.Offset]string{}
	leader := l.process(rg.Lease.Holder)
	c := &reader{client: newClient(l, "last"), r: rg.ID, at: rg.LogStart, last: -1}
	for c.at < rg.Floor {
		res, err := leader.engine.Load().Fetch(rg.ID, vtop.FetchSpec{Offset: c.at, MaxBytes: 1 << 16, AtLeastOne: true, ClientEpoch: -1, LastFetchedEpoch: -1}, nil)
		if errors.Is(err, vtop.ErrNotLeader) || errors.Is(err, vtop.ErrNotReady) {
			return nil, false
		}
		at := c.at
		if err == nil {
			c.take(res.Dst)
		}
		if err != nil || c.at == at {
			l.oracle.fail("K1: range %d, floor %d: nothing comes at %d: %v", rg.ID.Index, rg.Floor, c.at, err)
			break
		}
		for b, err := range batch.All(res.Dst) {
			if err != nil {
				break // take has told
			}
			_ = b.Records(1<<20, func(rec batch.Record) error { out[rec.Offset] = string(rec.Value); return nil }) // take has told
		}
	}
	return out, true
}

// same compares one replica with the leader's, byte by byte and segment by segment (K5, I9).
func (l *life) same(rg *fsm.Range, want *storage.Log, p *process, rep fsm.Replica) {
	got := p.store.Get(rg.ID)
	for from := rg.LogStart; from < rg.Floor; {
		a, next, _, err1 := want.Read(from, 1<<16, rg.Floor, nil)
		b, _, _, err2 := got.Read(from, 1<<16, rg.Floor, nil)
		n := min(len(a), len(b))
		if err1 != nil || err2 != nil || n == 0 || !bytes.Equal(a[:n], b[:n]) {
			l.oracle.fail("K5: range %d at %d: replica %d on %s has other bytes than the leader: %d and %d, %v, %v", rg.ID.Index, from, rep.ID, rep.Node, len(b), len(a), err2, err1)
			return
		}
		if len(a) != len(b) { // read on behind the shorter one
			last := batch.Batch(nil)
			for each := range batch.All(a[:n]) {
				last = each
			}
			next = last.LastOffset() + 1
		}
		from = next
	}
	if a, b := known(want), known(got); !slices.Equal(a, b) {
		l.oracle.fail("I11: range %d: replica %d on %s knows the producers %+v, the leader %+v", rg.ID.Index, rep.ID, rep.Node, b, a)
	}
	for _, info := range got.Segments() {
		seg, ok := l.ledger.now().Segment(rg.ID, info.Base)
		if info.State == storage.SegmentSealed && (!ok || seg.End != info.End || seg.Root != info.Root) {
			l.oracle.fail("I9: range %d: the sealed segment %d on %s is not the catalogue's", rg.ID.Index, info.Base, rep.Node)
		}
	}
}

// known lists what a replica knows of idempotent producers: by it duplicates are found, whoever leads.
func known(log *storage.Log) []storage.ProducerInfo {
	all := log.Producers(1000)
	slices.SortFunc(all, func(a, b storage.ProducerInfo) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
