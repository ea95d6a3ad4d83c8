package fsm

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// What every step of a walk must keep, beside the invariants of each state.

// stepRepairs: a job changes only while it is active, moves forward or says that it begins anew, and is only forgotten when it has
// ended; ids are never used again.
func stepRepairs(from, to *State) error {
	for old := range from.Repairs() {
		j, ok := to.Repair(old.ID)
		if !ok {
			if old.Active() || to.ended.Len() < MaxEndedRepairs {
				return fmt.Errorf("repair %d was forgotten", old.ID)
			}
			continue
		}
		switch {
		case j == old:
		case !old.Active():
			return fmt.Errorf("repair %d had ended and became %+v", old.ID, j)
		case j.Range != old.Range || j.Destination != old.Destination || j.Created != old.Created:
			return fmt.Errorf("repair %+v became %+v", old, j)
		case j.StepVersion != old.StepVersion && j.StepVersion != old.StepVersion+1, j.StepVersion == old.StepVersion && j.Step != old.Step:
			return fmt.Errorf("repair %d: step version %d→%d, step %s→%s", j.ID, old.StepVersion, j.StepVersion, old.Step, j.Step)
		case (j.Step < old.Step) && j.Attempts != old.Attempts+1:
			return fmt.Errorf("repair %d went from %s to %s in attempt %d", j.ID, old.Step, j.Step, j.Attempts)
		case j.Outcome == OutcomeWhole:
			r, _ := to.Range(j.Range)
			if rep, ok := r.VoterOn(j.Destination); !ok || rep.ID != j.Replica {
				return fmt.Errorf("I12: repair %d calls replica %d whole, the voter is %d", j.ID, j.Replica, rep.ID)
			}
		}
	}
	for j := range to.Repairs() {
		if _, ok := from.Repair(j.ID); !ok && j.ID <= from.lastRepair {
			return fmt.Errorf("repair id %d was used again", j.ID)
		}
	}
	return nil
}

// history remembers what must hold from state to state.
type history struct {
	brokers map[vtop.NodeName]vtop.BrokerID
	// epochs is the highest epoch ever granted under a topic name and index, over all lives of the name.
	epochs   map[string]vtop.Epoch
	replicas map[vtop.ReplicaID]vtop.Replica
	producer int64
}

func newHistory() *history {
	return &history{brokers: map[vtop.NodeName]vtop.BrokerID{}, epochs: map[string]vtop.Epoch{}, replicas: map[vtop.ReplicaID]vtop.Replica{}}
}

// step returns what is wrong with the step from one state to the next.
func (h *history) step(from, to *State, out Outcome) error {
	for n := range to.Nodes() {
		if id, ok := h.brokers[n.Name]; ok && id != n.Broker {
			return fmt.Errorf("node %s changed from broker %d to %d", n.Name, id, n.Broker)
		}
		h.brokers[n.Name] = n.Broker
	}
	if b := out.ProducerIDs; b.Count > 0 {
		if b.First < h.producer {
			return fmt.Errorf("producer ids from %d were given out before", b.First)
		}
		h.producer = b.First + int64(b.Count)
	}
	for r := range to.Ranges() {
		for _, rep := range r.Replicas {
			if known, ok := h.replicas[rep.ID]; ok && known != rep.Replica {
				return fmt.Errorf("I10: replica id %d was %s's, is %s's", rep.ID, known.Node, rep.Node)
			}
			h.replicas[rep.ID] = rep.Replica
		}
	}
	for _, item := range out.Items {
		r, ok := to.Range(item.Range)
		if !ok || item.Refusal != nil || r.GrantIndex != out.Index {
			continue
		}
		name := to.RangeName(item.Range)
		if item.Epoch <= h.epochs[name] {
			return fmt.Errorf("I5: %s was granted epoch %d after %d", name, item.Epoch, h.epochs[name])
		}
		h.epochs[name] = item.Epoch
	}
	if err := stepRepairs(from, to); err != nil {
		return err
	}
	if err := stepGroups(from, to, out); err != nil {
		return err
	}
	for old := range from.Ranges() {
		r, ok := to.Range(old.ID)
		if !ok {
			if !to.Deleted(old.ID.Topic) {
				return fmt.Errorf("range %s went without a tombstone", from.RangeName(old.ID))
			}
			continue
		}
		if err := stepRange(from, to, old, r); err != nil {
			return fmt.Errorf("range %s: %w", to.RangeName(r.ID), err)
		}
	}
	return nil
}

func stepRange(from, to *State, old, r *Range) error {
	kept, recovered := vtop.Offset(1<<63-1), false // offsets below kept were not given up in this step
	if n := len(r.LostOffsets); n > 0 && r.LostOffsets[n-1].Index == to.index {
		kept, recovered = r.LostOffsets[n-1].From, true
	}
	switch {
	case r.Floor < min(old.Floor, kept), r.LogStart < old.LogStart, !recovered && r.CatalogueEnd < old.CatalogueEnd:
		return fmt.Errorf("I7: floor %d→%d, log start %d→%d, catalogue end %d→%d", old.Floor, r.Floor, old.LogStart, r.LogStart, old.CatalogueEnd, r.CatalogueEnd)
	case r.ConfigVersion < old.ConfigVersion, r.LastEpoch < old.LastEpoch:
		return fmt.Errorf("configuration %d→%d, last epoch %d→%d", old.ConfigVersion, r.ConfigVersion, old.LastEpoch, r.LastEpoch)
	case r.Lease != old.Lease && r.Lease.Holder != "" && r.Lease.Epoch <= old.LastEpoch:
		return fmt.Errorf("I5: lease %+v came after epoch %d", r.Lease, old.LastEpoch)
	}
	for o := r.LogStart; o < min(old.Floor, kept); o++ { // what is promised has one history, for ever
		a, okA := old.Epochs.At(o)
		b, okB := r.Epochs.At(o)
		if okA && (a != b || !okB) {
			return fmt.Errorf("I2: offset %d below the floor %d went from epoch %d to %d", o, old.Floor, a, b)
		}
	}
	for seg := range from.Catalogue(r.ID) {
		if now, ok := to.Segment(r.ID, seg.Base); seg.End > r.LogStart && seg.End <= kept && (!ok || *now != *seg) {
			return fmt.Errorf("I9: segment %+v became %+v", *seg, now)
		}
	}
	if recovered {
		return stepRecovered(old, r, kept)
	}
	return stepVoters(old, r)
}

// stepRecovered: what a recovery gives up is written down, and nobody goes on as if nothing had been.
func stepRecovered(old, r *Range, kept vtop.Offset) error {
	lost := r.LostOffsets[len(r.LostOffsets)-1]
	rep, known := old.Replica(r.Replicas[0].ID)
	if len(r.Replicas) != 1 || !known || rep.Lost != "" || r.Lease.Holder != "" || r.ConfigVersion == old.ConfigVersion {
		return fmt.Errorf("I10: recovered %+v", r)
	}
	if lost.From != kept || lost.To < old.Floor || lost.Floor != old.Floor || r.Floor != min(old.Floor, kept) {
		return fmt.Errorf("I1: lost %+v, floor %d→%d", lost, old.Floor, r.Floor)
	}
	if table, err := r.Epochs.With(r.LastEpoch+1, kept); err != nil || kept < r.Floor {
		return fmt.Errorf("no epoch can start at %d: table %v, floor %d: %v", kept, table, r.Floor, err)
	}
	return nil
}

// stepVoters: voters change one at a time, and only after the last change has settled.
func stepVoters(old, r *Range) error {
	before, after := map[vtop.ReplicaID]bool{}, map[vtop.ReplicaID]bool{}
	for _, v := range old.Voters() {
		before[v.ID] = true
	}
	changed := 0
	for _, v := range r.Voters() {
		after[v.ID] = true
		if !before[v.ID] {
			changed++
		}
	}
	for id := range before {
		if !after[id] {
			changed++
		}
	}
	if changed > 1 || (changed == 1 && (!old.Settled() || r.ConfigVersion == old.ConfigVersion || r.Settled())) {
		return fmt.Errorf("I1: %d voters changed at once, settled before: %t, after: %t", changed, old.Settled(), r.Settled())
	}
	for _, rep := range old.Replicas {
		if now, ok := r.Replica(rep.ID); ok && rep.Lost != "" && now.Lost == "" {
			return fmt.Errorf("I10: replica %d was lost and is not any more", rep.ID)
		}
	}
	return nil
}
