package fsm

import (
	"iter"

	"github.com/vtop-log/vtop"
)

// RepairID names one repair job; given out from 1, never reused. 0 means none.
type RepairID uint64

// RepairStep is where a repair job stands. Steps rise; only RepairUpdate says when a job begins anew.
type RepairStep uint8

const (
	// RepairQueued: the destination has not begun, or begins anew.
	RepairQueued RepairStep = iota + 1
	// RepairSealing: the leader is asked to close its tail, and for the pinned list of sealed segments.
	RepairSealing
	// RepairTransferring: sealed segments are on their way.
	RepairTransferring
	// RepairAdopting: a learner is made, and what was staged becomes its log in one step (I11).
	RepairAdopting
	// RepairCatchingUp: the learner follows the leader's log.
	RepairCatchingUp
	// RepairPromoting: the learner has everything committed and waits to become a voter.
	RepairPromoting
	// RepairDone: ended, with what was read back from the destination: whole, or with a measured gap.
	RepairDone
	// RepairFailed: ended for a cause that the job names.
	RepairFailed
	// RepairCancelled: ended because somebody wanted it, or because the range was deleted.
	RepairCancelled
)

var repairSteps = [...]string{
	RepairQueued: "queued", RepairSealing: "sealing", RepairTransferring: "transferring", RepairAdopting: "adopting",
	RepairCatchingUp: "catching-up", RepairPromoting: "promoting", RepairDone: "done", RepairFailed: "failed", RepairCancelled: "cancelled",
}

// String gives the word that operators see.
func (s RepairStep) String() string {
	if s == 0 || int(s) >= len(repairSteps) {
		return "unknown"
	}
	return repairSteps[s]
}

// Active reports whether the job has not ended.
func (s RepairStep) Active() bool { return s >= RepairQueued && s <= RepairPromoting }

// RepairOrigin says who wanted a repair.
type RepairOrigin uint8

const (
	// OriginOperator: somebody asked for it.
	OriginOperator RepairOrigin = iota + 1
	// OriginHeal: the cluster heals itself.
	OriginHeal
	// OriginDrain: a node is drained of its replicas.
	OriginDrain
	// OriginReplace: a node takes another's place.
	OriginReplace
)

// String gives the word that operators see.
func (o RepairOrigin) String() string {
	switch o {
	case OriginOperator:
		return "operator"
	case OriginHeal:
		return "heal"
	case OriginDrain:
		return "drain"
	case OriginReplace:
		return "replace"
	}
	return "unknown"
}

// RepairOutcome says how a job ended.
type RepairOutcome uint8

const (
	// OutcomeNone: it has not ended.
	OutcomeNone RepairOutcome = iota
	// OutcomeWhole: at the floor and voting; there is no gap.
	OutcomeWhole
	// OutcomeGap: offsets are missing: how many was measured, and the cause is named.
	OutcomeGap
	// OutcomeFailed: it could not be done.
	OutcomeFailed
	// OutcomeRefused: it may not be done: fenced, not allowed, never written, nothing to repair from.
	OutcomeRefused
	// OutcomeCancelled: nobody wants it any more.
	OutcomeCancelled
)

// String gives the word that operators see; empty for OutcomeNone.
func (o RepairOutcome) String() string {
	switch o {
	case OutcomeNone:
		return ""
	case OutcomeWhole:
		return "whole"
	case OutcomeGap:
		return "gap"
	case OutcomeFailed:
		return "failed"
	case OutcomeRefused:
		return "refused"
	case OutcomeCancelled:
		return "cancelled"
	}
	return "unknown"
}

// RepairRequest is what is wanted of a repair.
type RepairRequest struct {
	Range vtop.Range
	// Destination is the node whose replica is to be whole. Its runner does the work.
	Destination vtop.NodeName
	// Replace is the node whose voter goes for it, a dead or lost one before the learner becomes a voter, a living one after;
	// it may be Destination. Empty: none.
	Replace vtop.NodeName
	// SealTail closes the leader's tail first, so that the sealed segments reach its log end.
	SealTail bool
	// Sources are the nodes to copy from; empty leaves the choice to the destination. At most MaxRepairSources.
	Sources []vtop.NodeName
	// MaxRate is in bytes a second; 0 leaves it to the budget that yields to clients.
	MaxRate int64
	Origin  RepairOrigin
	// Reason is shown to people.
	Reason string
	// Holes says that the destination's replica stays, and that only damaged sealed segments of it are replaced. Which ones the
	// destination knows.
	Holes bool
	// Config is the configuration version on which the decision is based; 0 asks for none.
	Config uint64
}

// DroppedSource is a source that a repair does not use any more.
type DroppedSource struct {
	Node   vtop.NodeName
	Reason string
}

// RepairProgress is what the destination tells of a job. Each update replaces it as a whole.
type RepairProgress struct {
	// Replica is the replica that the job makes whole, 0 until it is known: the learner made for it, or with Holes the
	// replica that was there.
	Replica vtop.ReplicaID
	// Epoch is that of the leader that sealed or pinned; NoEpoch before.
	Epoch vtop.Epoch
	// SealedEnd is the end of the sealed segments to copy; NoOffset until it is known.
	SealedEnd vtop.Offset
	// RecordsSealed is how many records the seal closed.
	RecordsSealed int64
	// Segments is the number of segments of the transfer, those that need no copy included.
	Segments   int32
	BytesTotal int64
	BytesDone  int64
	// BytesPerSecond is the rate at UpdatedAt; 0 when the job has ended.
	BytesPerSecond int64
	// ActiveSources are in use; once the transfer is over, those that bytes came from.
	ActiveSources  []vtop.NodeName
	DroppedSources []DroppedSource
	LastError      string
	// Waiting says why the job is not moving; empty if it is, or has ended.
	Waiting string
	Outcome RepairOutcome
	// Cause says why the outcome is not OutcomeWhole.
	Cause string
	// LogEnd, Floor, Gap and Voter were read back from the destination (I12). LogEnd and Floor are NoOffset until then; Gap
	// is the number of offsets that are missing.
	LogEnd, Floor vtop.Offset
	Gap           int64
	Voter         bool
}

// NewRepairProgress is the progress of a job that has not begun.
func NewRepairProgress() RepairProgress {
	return RepairProgress{SealedEnd: NoOffset, LogEnd: NoOffset, Floor: NoOffset}
}

// RepairJob is one repair: it lives in the state machine, and so outlives whoever asked for it, destination, source and leader.
type RepairJob struct {
	ID RepairID
	RepairRequest
	// Name is the range's name when the job was made; it stays when the topic goes.
	Name string
	Step RepairStep
	// StepVersion rises with each change of Step, and when the job begins anew; from 1.
	StepVersion uint64
	// Attempts counts how often the job began, from 1.
	Attempts uint32
	RepairProgress
	// Created and Ended are the Raft indexes of those moments; Ended is 0 while the job is active.
	Created, Ended uint64
	// CreatedAt and UpdatedAt are shown only: Unix milliseconds.
	CreatedAt, UpdatedAt int64
}

// Active reports whether the job has not ended.
func (j *RepairJob) Active() bool { return j.Step.Active() }

func (j *RepairJob) clone() *RepairJob {
	c := *j
	return &c
}

// Heal returns whether the cluster heals itself.
func (s *State) Heal() Heal { return s.cluster.Heal }

// Repair finds a repair job, active or one of the MaxEndedRepairs that ended last.
func (s *State) Repair(id RepairID) (*RepairJob, bool) { return s.repairs.Get(&RepairJob{ID: id}) }

// Repairs walks all repair jobs by id, ended ones included.
func (s *State) Repairs() iter.Seq[*RepairJob] { return all(s.repairs) }

// ActiveRepairCount is the number of jobs that have not ended.
func (s *State) ActiveRepairCount() int { return s.repairing.Len() }

// ActiveRepair finds the active job that repairs a range on a node; there is at most one.
func (s *State) ActiveRepair(r vtop.Range, destination vtop.NodeName) (job *RepairJob, ok bool) {
	s.repairing.Ascend(rangeRepair{r: r, node: destination}, func(k rangeRepair) bool {
		if k.r == r && k.node == destination {
			job, ok = s.Repair(k.id)
		}
		return false
	})
	return job, ok
}

// ActiveRepairs walks the active jobs of a range by destination.
func (s *State) ActiveRepairs(r vtop.Range) iter.Seq[*RepairJob] {
	return func(yield func(*RepairJob) bool) {
		s.repairing.Ascend(rangeRepair{r: r}, func(k rangeRepair) bool {
			if k.r != r {
				return false
			}
			job, ok := s.Repair(k.id)
			return !ok || yield(job)
		})
	}
}

// RepairsTo walks the active jobs whose destination is the node, the oldest first. It costs what it yields.
func (s *State) RepairsTo(node vtop.NodeName) iter.Seq[*RepairJob] {
	return func(yield func(*RepairJob) bool) {
		s.repairsTo.Ascend(nodeRepair{node: node}, func(k nodeRepair) bool {
			if k.node != node {
				return false
			}
			job, ok := s.Repair(k.id)
			return !ok || yield(job)
		})
	}
}
