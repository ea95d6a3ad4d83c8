package sim

import (
	"fmt"
	"sync"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// maxFailures is how many failures of one life are told: what follows the first ones follows from them.
const maxFailures = 10

// place is where a record is.
type place struct {
	r      vtop.Range
	offset vtop.Offset
}

// replicaKey names one replica of one host's disk.
type replicaKey struct {
	r    vtop.Range
	node vtop.NodeName
	id   vtop.ReplicaID
}

// oracle knows what was said, and says what contradicts it. Its methods are called at every step of the life.
type oracle struct {
	life *life

	mu       sync.Mutex
	failures []string
	// values holds what is at an offset, as the first reader or acknowledgement had it (K2).
	values map[place]string
	// acked are the records that were acknowledged with acks=all (K1).
	acked map[place]string
	// promises are the epochs that replicas have promised in an answer (I6).
	promises map[replicaKey]vtop.Epoch
	// durable is how far replicas were ever seen to be durable. They may have been cut or wiped since.
	durable map[replicaKey]vtop.Offset
	// holders are the holders of all epochs (K6).
	holders map[vtop.Range]map[vtop.Epoch]fsm.LeaseChange
	counts  counts
}

// counts say what a life did, so that one that did nothing shows.
type counts struct {
	acked, read, grants, repairs, seals, cuts, kills, lost int
}

func newOracle(l *life) *oracle {
	return &oracle{
		life: l, values: map[place]string{}, acked: map[place]string{}, promises: map[replicaKey]vtop.Epoch{}, durable: map[replicaKey]vtop.Offset{},
		holders: map[vtop.Range]map[vtop.Epoch]fsm.LeaseChange{},
	}
}

// fail notes that something is not as it must be. The life goes on: what follows may tell more.
func (o *oracle) fail(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(format, args...)
}

func (o *oracle) failLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(o.failures) < maxFailures {
		o.life.trace.note("FAILURE %s", text)
		o.failures = append(o.failures, text)
	}
}

// failed gives what was found so far.
func (o *oracle) failed() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.failures...)
}

// saw notes that somebody was told of a value: a reader, or a producer by an acknowledgement.
func (o *oracle) saw(who string, r vtop.Range, offset vtop.Offset, value string, acknowledged bool) {
	o.life.trace.mix(who, int64(offset))
	o.mu.Lock()
	defer o.mu.Unlock()
	at := place{r, offset}
	if old, ok := o.values[at]; ok && old != value {
		o.failLocked("K2: %s has %.24q at %d of range %d, where %.24q was", who, value, offset, r.Index, old)
		return
	}
	o.values[at] = value
	if acknowledged {
		o.acked[at] = value
		o.counts.acked++
	} else {
		o.counts.read++
	}
}

// decided looks at one step of the metadata. It is called under the lock of the ledger.
func (o *oracle) decided(index uint64, cmd fsm.Command, out fsm.Outcome, before, after *fsm.State) {
	o.life.trace.note("%4d %s %s", index, cmd.Op(), brief(cmd, out))
	if err := after.Check(); err != nil {
		o.fail("the state machine: %v", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch c := cmd.(type) {
	case *fsm.GrantLeases:
		o.counts.grants += len(c.Items)
	case *fsm.RegisterSegment:
		o.counts.seals++
	case *fsm.MarkReplicasLost:
		o.counts.lost += len(c.Items)
	}
	for now := range after.Ranges() {
		was, ok := before.Range(now.ID)
		if !ok || was == now {
			continue
		}
		if now.Floor < was.Floor || now.LogStart < was.LogStart || now.LogStart > now.Floor {
			o.failLocked("K3: range %d at %d: floor %d to %d, log start %d to %d", now.ID.Index, index, was.Floor, now.Floor, was.LogStart, now.LogStart)
		}
		o.leasesLocked(index, was, now)
		if now.Floor > was.Floor {
			o.majorityLocked(now, now.Floor, fmt.Sprintf("floor %d", now.Floor))
		}
	}
}

// acknowledging is called in the leader, as it says success to a producer: the records must be on the disks of a majority of the
// voters that the metadata has at that moment (I1).
func (o *oracle) acknowledging(r vtop.Range, end vtop.Offset) {
	rg, ok := o.life.ledger.now().Range(r)
	o.mu.Lock()
	defer o.mu.Unlock()
	if ok {
		o.majorityLocked(rg, end, fmt.Sprintf("an acknowledgement up to %d", end))
	}
}

// majorityLocked checks that a majority of the voters have, or had once, everything below end durable.
func (o *oracle) majorityLocked(rg *fsm.Range, end vtop.Offset, what string) {
	have, text := 0, ""
	for _, rep := range rg.Voters() {
		for _, h := range o.life.hosts {
			if h.name == rep.Node {
				o.sampleLocked(h.present(), rg.ID)
			}
		}
		durable := o.durable[replicaKey{rg.ID, rep.Node, rep.ID}]
		if durable >= end {
			have++
		}
		text += fmt.Sprintf(" %d on %s to %d", rep.ID, rep.Node, durable)
	}
	if have <= len(rg.Voters())/2 {
		o.failLocked("I1: %s of range %d, epoch %d: durable are only%s", what, rg.ID.Index, rg.Lease.Epoch, text)
	}
}

// sampleLocked notes how far a replica of a process, which may have died, is durable.
func (o *oracle) sampleLocked(p *process, r vtop.Range) {
	if p == nil {
		return
	}
	if log := p.store.Get(r); log != nil {
		key := replicaKey{r, p.host.name, log.ReplicaID()}
		o.durable[key] = max(o.durable[key], log.Durable())
	}
}

// dies is told of a process before it is buried.
func (o *oracle) dies(p *process) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.life.plan.ranges {
		o.sampleLocked(p, o.life.r(i))
	}
}

// leasesLocked checks that epochs grow and that each has one holder (K6).
func (o *oracle) leasesLocked(index uint64, was, now *fsm.Range) {
	if now.LastEpoch < was.LastEpoch || now.Lease != was.Lease && now.Lease.Holder != "" && now.Lease.Epoch <= was.LastEpoch {
		o.failLocked("K6: range %d at %d: lease %+v after epoch %d", now.ID.Index, index, now.Lease, was.LastEpoch)
	}
	if now.Lease.Holder == "" {
		return
	}
	all := o.holders[now.ID]
	if all == nil {
		all = map[vtop.Epoch]fsm.LeaseChange{}
		o.holders[now.ID] = all
	}
	if old, ok := all[now.Lease.Epoch]; ok && (old.Holder != now.Lease.Holder || old.Incarnation != now.Lease.Incarnation) {
		o.failLocked("K6: range %d: epoch %d was %s's and is %s's", now.ID.Index, now.Lease.Epoch, old.Holder, now.Lease.Holder)
	}
	all[now.Lease.Epoch] = fsm.LeaseChange{Holder: now.Lease.Holder, Incarnation: now.Lease.Incarnation}
}

// brief describes a command for the trace.
func brief(cmd fsm.Command, out fsm.Outcome) string {
	text := ""
	switch c := cmd.(type) {
	case *fsm.RegisterNode:
		text = fmt.Sprintf("%s %d", c.Name, c.Incarnation)
	case *fsm.GrantLeases:
		for i, it := range c.Items {
			text += fmt.Sprintf(" %d:%s@%d(%s)", it.Range.Index, it.Holder, out.Items[i].Epoch, it.Reason)
		}
	case *fsm.StartEpochs:
		for _, it := range c.Items {
			text += fmt.Sprintf(" %d@%d from %d", it.Range.Index, it.Epoch, it.Start)
		}
	case *fsm.ReportFloors:
		for _, it := range c.Items {
			text += fmt.Sprintf(" %d:%d", it.Range.Index, it.Floor)
		}
	case *fsm.RegisterSegment:
		text = fmt.Sprintf("%d: %d to %d", c.Range.Index, c.Base, c.End)
	case *fsm.ChangeReplicas:
		text = fmt.Sprintf("%d: %v %d %s", c.Range.Index, c.Change, c.ReplicaID, c.Node)
	case *fsm.MarkReplicasLost:
		for _, it := range c.Items {
			text += fmt.Sprintf(" %s %d:%d", c.Node, it.Range.Index, it.ReplicaID)
		}
		text += " " + c.Reason
	case *fsm.MoveLogStart:
		text = fmt.Sprintf("%d: %d", c.Range.Index, c.Start)
	case *fsm.ReleaseLeases:
		for _, it := range c.Items {
			text += fmt.Sprintf(" %d@%d", it.Range.Index, it.Epoch)
		}
	}
	if out.Refusal != nil {
		text += " REFUSED " + out.Refusal.Error()
	}
	for _, it := range out.Items {
		if it.Refusal != nil {
			text += " REFUSED " + it.Refusal.Error()
		}
	}
	return text
}

// promised notes what a voter has answered to a fence.
func (o *oracle) promised(p *process, req *peerpb.FenceRequest, resp *peerpb.FenceResponse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, res := range resp.GetResults() {
		r, err := transport.RangeFrom(req.GetItems()[i].GetRange())
		if err != nil || res.GetCode() != peerpb.Code_CODE_UNSPECIFIED {
			continue
		}
		key := replicaKey{r, p.host.name, vtop.ReplicaID(req.GetItems()[i].GetReplicaId())}
		o.promises[key] = max(o.promises[key], vtop.Epoch(req.GetItems()[i].GetEpoch()))
	}
}

// opened compares a store that was just opened with what its replicas have promised (I6).
func (o *oracle) opened(p *process) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, epoch := range o.promises {
		log := p.store.Get(key.r)
		if key.node != p.host.name || log == nil || log.ReplicaID() != key.id || log.Err() != nil {
			continue
		}
		if got := log.Promised(); got < epoch {
			o.failLocked("I6: replica %d of range %d on %s promised epoch %d, and remembers %d", key.id, key.r.Index, key.node, epoch, got)
		}
	}
}

// settled compares, at the end of a life, every acknowledgement with what is there, and counts the values of idempotent
// producers (K1, K4). start is the log start of each range, log what its leader has.
func (o *oracle) settled(r vtop.Range, start vtop.Offset, log map[vtop.Offset]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	times := map[string]int{}
	for _, value := range log {
		times[value]++
	}
	for at, value := range o.acked {
		if at.r == r && at.offset >= start && log[at.offset] != value {
			o.failLocked("K1: %.24q was acknowledged at %d of range %d, there is %.24q", value, at.offset, r.Index, log[at.offset])
		}
	}
	for value, n := range times {
		if n > 1 && value[0] == 'i' {
			o.failLocked("K4: %.24q of an idempotent producer is %d times in range %d", value, n, r.Index)
		}
	}
}

// add counts something.
func (o *oracle) add(fn func(*counts)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fn(&o.counts)
}

// plus adds the counts of another life.
func (c *counts) plus(d counts) {
	c.acked, c.read, c.grants, c.repairs = c.acked+d.acked, c.read+d.read, c.grants+d.grants, c.repairs+d.repairs
	c.seals, c.cuts, c.kills, c.lost = c.seals+d.seals, c.cuts+d.cuts, c.kills+d.kills, c.lost+d.lost
}
