package protocol

import "github.com/vtop-log/vtop"

// Condition is what the leader knows of the node that holds a replica.
type Condition uint8

const (
	// Living: the node answers and is to stay.
	Living Condition = iota + 1
	// Leaving: the node answers and is being drained.
	Leaving
	// Dead: the node has been gone longer than the cluster heals after.
	Dead
	// Lost: the replica may have forgotten what it held (I10).
	Lost
)

// Member is one replica and its condition.
type Member struct {
	Replica   vtop.ReplicaID
	Condition Condition
}

// Plan is the question which change of voters comes next. It decides order only; Leading.Begin guards safety.
type Plan struct {
	// Self is the leader's replica: never removed by itself. A leader that is to leave hands over its lease first.
	Self vtop.ReplicaID
	// Voters are sorted by replica id, Learners in the order in which they are to become voters.
	Voters, Learners []Member
	// Want is the number of voters wished for, at least 1.
	Want int
	// Marks are the acknowledgements under the leader's epoch, HighWatermark its high watermark.
	Marks         Marks
	HighWatermark vtop.Offset
}

// Next returns the next change, ok false when there is nothing to do or nothing may be done yet.
//
// A dead or lost voter is removed before its caught-up learner is added: added first, the learner would make the
// quorum larger while one voter cannot answer. A living voter is removed after: removed first, the set would be
// smaller than wished while nothing is wrong. Nothing is removed before its replacement has caught up, unless there
// are more voters than wished; and never when those that stay have not acknowledged the high watermark themselves.
func (p Plan) Next() (Change, bool) {
	ready := p.ready()
	surplus := len(p.Voters) > p.Want
	if ready != 0 || surplus {
		for _, c := range []Condition{Lost, Dead} {
			if id := p.removable(c); id != 0 {
				return Change{RemoveVoter, id}, true
			}
		}
	}
	leaving := p.removable(Leaving)
	switch {
	case surplus && leaving != 0:
		return Change{RemoveVoter, leaving}, true
	case ready != 0 && len(p.Voters) < p.Want,
		ready != 0 && len(p.Voters) == p.Want && leaving != 0:
		return Change{AddVoter, ready}, true
	}
	return Change{}, false
}

// ready returns a living learner that has acknowledged the high watermark, 0 if none has.
func (p Plan) ready() vtop.ReplicaID {
	for _, m := range p.Learners {
		if m.Condition == Living && p.Marks.Of(m.Replica) >= p.HighWatermark {
			return m.Replica
		}
	}
	return 0
}

// removable returns a voter of the condition that may go, 0 if none may.
func (p Plan) removable(c Condition) vtop.ReplicaID {
	var all Set
	for _, m := range p.Voters {
		all = all.With(m.Replica)
	}
	for _, m := range p.Voters {
		rest := all.Without(m.Replica)
		if m.Condition == c && m.Replica != p.Self && len(rest) > 0 && rest.Committed(p.Marks) >= p.HighWatermark {
			return m.Replica
		}
	}
	return 0
}
