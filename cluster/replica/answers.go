package replica

import (
	"errors"
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
)

// answerOf puts a voter's answer into the protocol's words.
func answerOf(id vtop.ReplicaID, epoch vtop.Epoch, a promised) protocol.Answer {
	out := protocol.Answer{Replica: id, Epoch: epoch}
	if a.err != nil {
		out.Refusal = refusalOf(epoch, a)
		return out
	}
	out.End = a.end
	for i, run := range a.runs {
		if run.Start < a.end && (i == len(a.runs)-1 || a.runs[i+1].Start >= a.end) {
			out.Last = run.Epoch
		}
	}
	return out
}

// refusalOf turns an error, perhaps of another node, into the protocol's refusal. Only one that names an epoch at or above
// the asked one makes the candidate give up.
func refusalOf(epoch vtop.Epoch, a promised) *protocol.Refusal {
	var own *protocol.Refusal
	if errors.As(a.err, &own) {
		return own
	}
	r := &protocol.Refusal{Code: protocol.Behind, Asked: epoch, Epoch: a.epoch, Detail: a.err.Error()}
	switch {
	case errors.Is(a.err, vtop.ErrFenced) && a.epoch >= epoch:
		r.Code = protocol.Promised
	case errors.Is(a.err, vtop.ErrReplicaLost), errors.Is(a.err, vtop.ErrDamaged):
		r.Code = protocol.ReplicaLost
	}
	return r
}

// explainLocked writes down why a range is not served yet, for people.
func (p *promoter) explainLocked(pr *promotion) {
	why := pr.choice.Why
	if why == "" {
		why = pr.why
	} else if pr.why != "" && pr.choice.Step == protocol.StepWait {
		why += "; " + pr.why
	}
	switch pr.choice.Step {
	case protocol.StepBelowFloor, protocol.StepConflict:
		why += "; the rest may be on " + pr.others()
		if pr.tries == 1 {
			p.engine.log.Error("range stays unavailable", "range", p.engine.name(pr.r), "epoch", pr.lease.Epoch, "why", why)
		}
	case protocol.StepWait:
		for _, a := range pr.choice.Refused {
			why += fmt.Sprintf("; replica %d: %v", a.Replica, a.Refusal)
		}
	}
	pr.slot.mu.Lock()
	if pr.slot.promotion == pr {
		pr.slot.becomeLocked(RolePromoting, why)
	}
	pr.slot.mu.Unlock()
}

// forgetPromotion ends the part of a promotion whose lease has moved: what it still has to say is of the past.
func (s *slot) forgetPromotion() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.promotion == nil {
		return
	}
	s.promotion = nil
	if s.role != RolePromoting {
		return
	}
	if s.following.Load() != nil {
		s.becomeLocked(RoleFollowing, "")
	} else {
		s.becomeLocked(RoleIdle, "the lease moved before its epoch had started")
	}
}

// others names the voters that have not promised, with their nodes.
func (pr *promotion) others() string {
	text := ""
	note := func(id vtop.ReplicaID, how string) {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("replica %d on %q (%s)", id, pr.nodes[id], how)
	}
	for _, id := range pr.choice.Missing {
		note(id, "no answer")
	}
	for _, a := range pr.choice.Refused {
		note(a.Replica, a.Refusal.Error())
	}
	if text == "" {
		return "no voter that is left"
	}
	return text
}
