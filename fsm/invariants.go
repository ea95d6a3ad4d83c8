package fsm

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// Check walks the whole state and says which of its invariants is broken first; nil if none is. The numbers are those
// of docs/protocol.md. Tests run it after every command; Load runs it on what it read.
func (s *State) Check() error {
	for _, check := range []func() error{s.checkNodes, s.checkTopics, s.checkRanges, s.checkCatalogue, s.checkRepairs, s.checkIndexes, s.checkGroups, s.checkQuotas} {
		if err := check(); err != nil {
			return fmt.Errorf("state at index %d: %w", s.index, err)
		}
	}
	return nil
}

func (s *State) checkNodes() error {
	brokers := make(map[vtop.BrokerID]vtop.NodeName)
	storages := make(map[vtop.StorageID]vtop.NodeName)
	raftIDs := make(map[string]vtop.NodeName)
	for n := range s.Nodes() {
		if n.Broker < 1 || n.Broker > s.lastBroker {
			return fmt.Errorf("node %q: broker id %d is not in 1…%d", n.Name, n.Broker, s.lastBroker)
		}
		if other, ok := brokers[n.Broker]; ok {
			return fmt.Errorf("nodes %q and %q share broker id %d", other, n.Name, n.Broker)
		}
		brokers[n.Broker] = n.Name
		if n.Incarnation == 0 || n.State < NodeActive || n.State > NodeGone || len(n.Pending) > MaxClaims {
			return fmt.Errorf("node %q: incarnation %d, state %d, %d claims", n.Name, n.Incarnation, n.State, len(n.Pending))
		}
		if n.State == NodeGone {
			continue
		}
		if other, ok := storages[n.Storage]; ok {
			return fmt.Errorf("nodes %q and %q share data directory %s", other, n.Name, n.Storage)
		}
		if other, ok := raftIDs[n.RaftID]; ok {
			return fmt.Errorf("nodes %q and %q share raft id %s", other, n.Name, n.RaftID)
		}
		storages[n.Storage], raftIDs[n.RaftID] = n.Name, n.Name
	}
	return nil
}

func (s *State) checkTopics() error {
	total := 0
	for t := range all(s.topics) {
		if id, ok := s.names.Get(t.Name); !ok || id != t.ID {
			return fmt.Errorf("topic %q (%s): the name leads to %s", t.Name, t.ID, id)
		}
		if s.Deleted(t.ID) {
			return fmt.Errorf("topic %q (%s) has a tombstone", t.Name, t.ID)
		}
		n := int32(0)
		for r := range s.RangesOfTopic(t.ID) {
			if r.ID.Index != n {
				return fmt.Errorf("topic %q: range %d stands where %d should", t.Name, r.ID.Index, n)
			}
			n++
		}
		if n != t.Ranges || n == 0 || t.ConfigVersion == 0 {
			return fmt.Errorf("topic %q: %d ranges found, %d recorded, configuration version %d", t.Name, n, t.Ranges, t.ConfigVersion)
		}
		total += int(n)
	}
	if total != s.ranges.Len() || s.names.Len() != s.topics.Len() {
		return fmt.Errorf("%d ranges, %d of topics; %d names, %d topics", s.ranges.Len(), total, s.names.Len(), s.topics.Len())
	}
	return nil
}

func (s *State) checkRanges() error {
	seen := make(map[vtop.ReplicaID]vtop.Range)
	for r := range s.Ranges() {
		for _, rep := range r.Replicas {
			if other, ok := seen[rep.ID]; ok {
				return fmt.Errorf("I10: ranges %s and %s share replica id %d", s.RangeName(other), s.RangeName(r.ID), rep.ID)
			}
			seen[rep.ID] = r.ID
		}
		for _, check := range []func(*Range) error{s.checkReplicas, checkLease, checkEpochs, checkOffsets} {
			if err := check(r); err != nil {
				return fmt.Errorf("range %s: %w", s.RangeName(r.ID), err)
			}
		}
	}
	return nil
}

func (s *State) checkReplicas(r *Range) error {
	if r.ConfigVersion == 0 || len(r.Voters()) == 0 || len(r.Replicas) > MaxReplicas || len(r.Preferred) > MaxReplicas {
		return fmt.Errorf("configuration version %d, %d replicas, %d preferred", r.ConfigVersion, len(r.Replicas), len(r.Preferred))
	}
	whole := make(map[vtop.NodeName]bool)
	last := vtop.ReplicaID(0)
	for _, rep := range r.Replicas {
		if rep.ID <= last || rep.ID > s.lastReplica {
			return fmt.Errorf("replica id %d after %d, last minted %d", rep.ID, last, s.lastReplica)
		}
		last = rep.ID
		if rep.Role != Voter && rep.Role != Learner {
			return fmt.Errorf("replica %d has role %d", rep.ID, rep.Role)
		}
		n, ok := s.Node(rep.Node)
		if !ok || n.State == NodeGone {
			return fmt.Errorf("replica %d is on node %q, which is unknown or gone", rep.ID, rep.Node)
		}
		if rep.Lost == "" && whole[rep.Node] {
			return fmt.Errorf("node %q has two replicas that are not lost", rep.Node)
		}
		whole[rep.Node] = whole[rep.Node] || rep.Lost == ""
	}
	return nil
}

func checkLease(r *Range) error {
	if len(r.Changes) > MaxLeaseChanges || len(r.Losses) > MaxLosses {
		return fmt.Errorf("I13: history of %d changes, %d losses", len(r.Changes), len(r.Losses))
	}
	if len(r.LostOffsets) > MaxLostOffsets {
		return fmt.Errorf("I13: history of %d recoveries", len(r.LostOffsets))
	}
	if r.Lease == (vtop.Lease{}) {
		if r.Started || r.GrantIndex != 0 || r.QuorumPosition != NoOffset {
			return fmt.Errorf("no lease, but started %t, grant index %d, quorum position %d", r.Started, r.GrantIndex, r.QuorumPosition)
		}
		return nil
	}
	if r.Lease.Range != r.ID || r.Lease.Epoch != r.LastEpoch || r.Lease.Epoch < 1 || r.Lease.Incarnation == 0 || r.GrantIndex == 0 {
		return fmt.Errorf("I5: lease %+v, last epoch %d, grant index %d", r.Lease, r.LastEpoch, r.GrantIndex)
	}
	if _, ok := r.VoterOn(r.Lease.Holder); !ok {
		return fmt.Errorf("I10: holder %q has no replica that can vote", r.Lease.Holder)
	}
	last, ok := r.Epochs.Last()
	if r.Started != (ok && last.Epoch == r.Lease.Epoch) {
		return fmt.Errorf("lease of epoch %d started %t, the epoch table ends with %d", r.Lease.Epoch, r.Started, last.Epoch)
	}
	if !r.Started && r.QuorumPosition != NoOffset {
		return fmt.Errorf("quorum position %d under an epoch that has not started", r.QuorumPosition)
	}
	return nil
}

func checkEpochs(r *Range) error {
	for i, e := range r.Epochs {
		if e.Epoch < 1 || e.Epoch > r.LastEpoch || e.Start < 0 {
			return fmt.Errorf("I8: epoch table entry %+v, last epoch %d", e, r.LastEpoch)
		}
		if i > 0 && (e.Epoch <= r.Epochs[i-1].Epoch || e.Start <= r.Epochs[i-1].Start) {
			return fmt.Errorf("I8: epoch table entry %+v after %+v", e, r.Epochs[i-1])
		}
	}
	if len(r.Epochs.Trim(r.LogStart)) != len(r.Epochs) {
		return fmt.Errorf("I13: epoch table %v is not trimmed to log start %d", r.Epochs, r.LogStart)
	}
	return nil
}

func checkOffsets(r *Range) error {
	for _, l := range r.LostOffsets {
		if l.From < 0 || l.To < l.From || l.To < l.Floor || l.Epoch > r.LastEpoch {
			return fmt.Errorf("lost offsets [%d, %d) up to epoch %d, floor %d; last epoch %d", l.From, l.To, l.Epoch, l.Floor, r.LastEpoch)
		}
	}
	if r.LogStart < 0 || r.LogStart > r.Floor || r.Floor > r.LogEnd {
		return fmt.Errorf("I1: log start %d, floor %d, log end %d", r.LogStart, r.Floor, r.LogEnd)
	}
	if r.CatalogueEnd < 0 || r.CatalogueEnd > r.Floor {
		return fmt.Errorf("I9: catalogue ends at %d, floor %d", r.CatalogueEnd, r.Floor)
	}
	if r.QuorumPosition < NoOffset || r.QuorumPosition > r.LogEnd || r.SettleMark < 0 {
		return fmt.Errorf("quorum position %d, log end %d, settle mark %d", r.QuorumPosition, r.LogEnd, r.SettleMark)
	}
	return nil
}

// checkCatalogue: what is kept of a range's catalogue has no gap and no overlap, reaches the log start, and ends where
// the range says.
func (s *State) checkCatalogue() error {
	var prev *Segment
	for seg := range all(s.segments) {
		r, ok := s.Range(seg.Range)
		if !ok {
			return fmt.Errorf("segment %d of unknown range %s", seg.Base, s.RangeName(seg.Range))
		}
		if seg.Base < 0 || seg.End <= seg.Base || seg.End <= r.LogStart || seg.End > r.CatalogueEnd || seg.Bytes <= 0 || seg.Epoch < 1 {
			return fmt.Errorf("I9: range %s: segment [%d, %d) of %d bytes, log start %d, catalogue end %d",
				s.RangeName(seg.Range), seg.Base, seg.End, seg.Bytes, r.LogStart, r.CatalogueEnd)
		}
		if prev != nil && prev.Range == seg.Range && prev.End != seg.Base {
			return fmt.Errorf("I9: range %s: segment %d after one that ends at %d", s.RangeName(seg.Range), seg.Base, prev.End)
		}
		if last, _ := s.LastSegment(seg.Range); last == seg && seg.End != r.CatalogueEnd {
			return fmt.Errorf("I9: range %s: last segment ends at %d, catalogue at %d", s.RangeName(seg.Range), seg.End, r.CatalogueEnd)
		}
		prev = seg
	}
	return nil
}

// checkRepairs: jobs are bounded, an active one has something to work on, and one that ended says how.
func (s *State) checkRepairs() error {
	active, ended := 0, 0
	for j := range s.Repairs() {
		if j.ID < 1 || j.ID > s.lastRepair || j.StepVersion == 0 || j.Attempts < 1 || j.Attempts > MaxRepairAttempts || j.Step > RepairCancelled {
			return fmt.Errorf("repair %d of %d: step %d, version %d, attempts %d", j.ID, s.lastRepair, j.Step, j.StepVersion, j.Attempts)
		}
		if len(j.Sources) > MaxRepairSources || len(j.ActiveSources) > MaxRepairSources || len(j.DroppedSources) > MaxRepairSources {
			return fmt.Errorf("I13: repair %d: %d, %d and %d sources", j.ID, len(j.Sources), len(j.ActiveSources), len(j.DroppedSources))
		}
		if j.Active() {
			active++
			if err := s.checkActiveRepair(j); err != nil {
				return fmt.Errorf("repair %d: %w", j.ID, err)
			}
			continue
		}
		ended++
		if j.Ended == 0 || j.Outcome == OutcomeNone || (j.Step == RepairDone) != (j.Outcome == OutcomeWhole || j.Outcome == OutcomeGap) ||
			(j.Outcome == OutcomeWhole) != (j.Step == RepairDone && j.Voter && j.Gap == 0) {
			return fmt.Errorf("I12: repair %d is %s since index %d with outcome %d, gap %d, voter %t", j.ID, j.Step, j.Ended, j.Outcome, j.Gap, j.Voter)
		}
		if _, ok := s.ended.Get(endedRepair{j.Ended, j.ID}); !ok {
			return fmt.Errorf("repair %d, ended at index %d, is not in the order of endings", j.ID, j.Ended)
		}
	}
	if active > MaxActiveRepairs || ended > MaxEndedRepairs {
		return fmt.Errorf("I13: %d active repairs, %d ended", active, ended)
	}
	if s.repairing.Len() != active || s.repairsTo.Len() != active || s.ended.Len() != ended {
		return fmt.Errorf("%d active repairs, %d by range, %d by node; %d ended, %d in order", active, s.repairing.Len(), s.repairsTo.Len(), ended, s.ended.Len())
	}
	return nil
}

func (s *State) checkActiveRepair(j *RepairJob) error {
	r, ok := s.Range(j.Range)
	if n, known := s.Node(j.Destination); !ok || !known || n.State == NodeGone {
		return fmt.Errorf("active, of %s to %q: range known %t, node known %t", s.RangeName(j.Range), j.Destination, ok, known)
	}
	if j.Ended != 0 || j.Outcome != OutcomeNone {
		return fmt.Errorf("active, ended at index %d, outcome %d", j.Ended, j.Outcome)
	}
	if first, _ := s.ActiveRepair(j.Range, j.Destination); first != j {
		return fmt.Errorf("not the only active one of %s to %q", s.RangeName(j.Range), j.Destination)
	}
	if _, ok := s.repairsTo.Get(nodeRepair{j.Destination, j.ID}); !ok {
		return fmt.Errorf("active, and not in the index of %q", j.Destination)
	}
	if rep, there := r.Replica(j.Replica); j.Replica != 0 && (!there || rep.Node != j.Destination || rep.Lost != "") {
		return fmt.Errorf("I10: works for replica %d: %+v", j.Replica, rep)
	}
	return nil
}

func (s *State) checkIndexes() error {
	replicas := 0
	for r := range s.Ranges() {
		for _, rep := range r.Replicas {
			if _, ok := s.held.Get(nodeReplica{rep.Node, r.ID, rep.ID}); !ok {
				return fmt.Errorf("replica %d of %s on %q is not in the index", rep.ID, s.RangeName(r.ID), rep.Node)
			}
			replicas++
		}
	}
	if s.held.Len() != replicas {
		return fmt.Errorf("index of %d replicas, %d exist", s.held.Len(), replicas)
	}
	if s.tombstones.Len() != s.burials.Len() || s.tombstones.Len() > MaxTombstones {
		return fmt.Errorf("%d tombstones, %d in order of burial", s.tombstones.Len(), s.burials.Len())
	}
	if s.nextProducerID < 1 || s.firstEpoch < 0 {
		return fmt.Errorf("next producer id %d, first epoch %d", s.nextProducerID, s.firstEpoch)
	}
	return nil
}
