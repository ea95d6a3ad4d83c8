package protocol

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// Answer is one voter's answer to a fence of one epoch, after the promise was fsynced, or its refusal.
type Answer struct {
	// Replica is the voter that answered.
	Replica vtop.ReplicaID
	// Epoch is the epoch asked for; an answer for another epoch than the candidate's counts for nothing.
	Epoch vtop.Epoch
	// End is the durable end of the reconciled log.
	End vtop.Offset
	// Last is the epoch of the record at End-1; NoEpoch for an empty log.
	Last vtop.Epoch
	// Refusal is set when the voter did not promise; End and Last are then meaningless.
	Refusal *Refusal
}

// Promotion is what a candidate's applied state says of its range when it asks the voters.
type Promotion struct {
	Epoch  vtop.Epoch
	Self   vtop.ReplicaID
	Voters Set
	Floor  vtop.Offset
	// LogStart is the range's log start: an empty log ends there.
	LogStart vtop.Offset
	Table    vtop.EpochTable
}

// Step is what the candidate does next.
type Step uint8

const (
	// StepWait: no majority has promised yet. Ask those in Choice.Missing again.
	StepWait Step = iota + 1
	// StepGiveUp: a later epoch was granted, or one at or above this was promised elsewhere. Ask for a new grant with
	// Choice.Minimum.
	StepGiveUp
	// StepBelowFloor: a majority promised, but no log among them reaches the floor. The range stays unavailable
	// until one in Choice.Missing or Choice.Refused answers.
	StepBelowFloor
	// StepConflict: an answer contradicts the epoch table: an incident. Nothing is started.
	StepConflict
	// StepFetch: fetch [own end, Choice.End) from one of Choice.Sources, verify, fsync, choose again.
	StepFetch
	// StepStart: propose StartEpoch{Epoch, Choice.End}.
	StepStart
)

// Choice is the result of Promotion.Choose.
type Choice struct {
	Step Step
	// End is the longest end among those that promised: the start of the epoch. Valid for StepFetch, StepStart and
	// StepBelowFloor.
	End vtop.Offset
	// Sources are the voters that hold all up to End, by replica id. Valid for StepFetch.
	Sources []vtop.ReplicaID
	// Missing are voters that have not answered: each may hold more.
	Missing []vtop.ReplicaID
	// Refused are voters that answered that they cannot vote, or not yet.
	Refused []Answer
	// Minimum is the epoch that the next grant must be above, for StepGiveUp.
	Minimum vtop.Epoch
	// Why is a phrase for people; empty for StepFetch and StepStart.
	Why string
}

// Choose reads the answers, at most one for each replica; answers of replicas that are no voters and of other
// epochs count for nothing. The candidate's own answer is one of them: it promises itself by the same rule, and
// only then may it start.
//
// The longest log is enough: every log was cut by one table, so all are prefixes of one sequence, and some member
// of any majority holds all that an earlier majority acknowledged. A record that only the longest log had was not
// acknowledged, perhaps; keeping it is allowed, losing an acknowledged one is not.
func (p Promotion) Choose(answers []Answer) Choice {
	c := Choice{End: NoOffset}
	var given []Answer
	own := false
	for _, id := range p.Voters {
		a, ok := find(answers, id, p.Epoch)
		switch {
		case !ok:
			c.Missing = append(c.Missing, id)
		case a.Refusal != nil:
			c.Refused = append(c.Refused, a)
			if r := a.Refusal; r.Code == Superseded || r.Code == Promised || r.Code == NotGranted {
				c.Minimum = max(c.Minimum, r.Epoch)
			}
		default:
			given = append(given, a)
			own = own || id == p.Self
			c.End = max(c.End, a.End)
		}
	}
	if len(given) >= p.Voters.Majority() && own {
		return p.decide(c, given)
	}
	if c.Minimum >= p.Epoch {
		c.Step, c.Why = StepGiveUp, fmt.Sprintf("epoch %d was granted or promised elsewhere", c.Minimum)
		return c
	}
	c.Step, c.Why = StepWait, fmt.Sprintf("%d of %d voters promised, %d needed, own promise %t", len(given), len(p.Voters), p.Voters.Majority(), own)
	return c
}

// decide chooses when a majority has promised.
func (p Promotion) decide(c Choice, given []Answer) Choice {
	self := NoOffset
	for _, a := range given {
		if a.Replica == p.Self {
			self = a.End
		}
		if a.End == c.End {
			c.Sources = append(c.Sources, a.Replica)
		}
		if owner, known := p.Table.At(a.End - 1); a.End > p.LogStart && known && owner != a.Last {
			c.Step, c.Sources = StepConflict, nil
			c.Why = fmt.Sprintf("replica %d ends at %d with epoch %d, the table gives that offset to epoch %d", a.Replica, a.End, a.Last, owner)
			return c
		}
	}
	switch {
	case c.End < p.Floor:
		c.Step, c.Sources = StepBelowFloor, nil
		c.Why = fmt.Sprintf("the longest log of a majority ends at %d, the committed floor is %d", c.End, p.Floor)
	case self < c.End:
		c.Step = StepFetch
	default:
		c.Step, c.Sources = StepStart, nil
	}
	return c
}

// find returns the replica's answer for the epoch; a promise wins over a refusal that was given earlier.
func find(answers []Answer, id vtop.ReplicaID, epoch vtop.Epoch) (found Answer, ok bool) {
	for _, a := range answers {
		if a.Replica != id || a.Epoch != epoch {
			continue
		}
		if !ok || found.Refusal != nil || (a.Refusal == nil && a.End > found.End) {
			found, ok = a, true
		}
	}
	return found, ok
}
