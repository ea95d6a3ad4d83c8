package repair

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// followPause is between two looks at a learner.
const followPause = 250 * time.Millisecond

func learnerRequest(r vtop.Range, epoch vtop.Epoch, self vtop.NodeName, job fsm.RepairID) *peerpb.AddLearnerRequest {
	return &peerpb.AddLearnerRequest{Range: rangeTo(r), Epoch: int32(epoch), Node: string(self), Job: uint64(job)}
}

// catchingUp waits until the learner has all that is promised.
func (t *task) catchingUp(_ context.Context, s scene) turn {
	log, next, ok := t.replica(s)
	if !ok {
		return t.outOfPatienceAdopted(s, next)
	}
	end, durable, _ := log.Position()
	moved := end != t.read
	if moved {
		t.moved = time.Now()
	}
	t.p.LogEnd, t.p.Floor, t.read = end, s.rg.Floor, end
	rep, _ := s.rg.Replica(t.p.Replica)
	if rep.CanVote() || durable >= s.rg.Floor && durable >= t.r.cfg.Follows(t.rng).HighWatermark {
		return to(fsm.RepairPromoting)
	}
	if moved {
		return turn{pause: followPause}
	}
	return t.outOfPatienceAdopted(s, turn{why: t.whyBehind(s, durable), pause: followPause})
}

// outOfPatienceAdopted is outOfPatience for a job that has made a learner. While most voters of the range are lost, nobody can become
// one, and what was received may be all that an operator has left to recover the range from: the job goes on then.
func (t *task) outOfPatienceAdopted(s scene, next turn) turn {
	if s.rg.AbleVoters() <= len(s.rg.Voters())/2 {
		t.moved = time.Now()
	}
	return t.outOfPatience(next)
}

// replica finds the log of the job's replica on this node.
func (t *task) replica(s scene) (*storage.Log, turn, bool) {
	if _, ok := s.rg.Replica(t.p.Replica); !ok {
		return nil, wait("replica %d is not of the range any more, which the job is about to learn", t.p.Replica), false
	}
	log := t.r.cfg.Store.Get(t.rng)
	switch {
	case log == nil || log.ReplicaID() != t.p.Replica:
		t.r.cfg.Wake(t.rng)
		return nil, turn{why: fmt.Sprintf("the directory of replica %d is not there yet", t.p.Replica), pause: followPause}, false
	case log.Err() != nil:
		return nil, wait("replica %d on this node: %v", t.p.Replica, log.Err()), false
	}
	return log, turn{}, true
}

// whyBehind says why the learner does not catch up.
func (t *task) whyBehind(s scene, durable vtop.Offset) string {
	if _, why := t.leader(s); why != "" {
		return why
	}
	text := fmt.Sprintf("%d records are missing up to the floor", max(s.rg.Floor-durable, 0))
	if f := t.r.cfg.Follows(t.rng); f.Why != "" {
		text += ": " + f.Why
	}
	return text
}

// promoting waits until the leader has made the replica a voter, and until the one that it replaces has gone; then the job
// ends with what is read back from this node's disk (I12).
func (t *task) promoting(_ context.Context, s scene) turn {
	rep, ok := s.rg.Replica(t.p.Replica)
	if s.job.Holes {
		rep, ok = s.rg.Replica(s.job.Replica)
		t.p.Replica = s.job.Replica
	}
	log, next, there := t.replica(s)
	if !there {
		return t.outOfPatienceAdopted(s, next)
	}
	end, durable, _ := log.Position()
	t.p.LogEnd, t.p.Floor, t.p.Voter = end, s.rg.Floor, ok && rep.CanVote()
	if end != t.read {
		t.read = end
		if durable < s.rg.Floor {
			t.moved = time.Now()
		}
	}
	if why := t.whyNotVoter(s, rep); why != "" {
		return t.outOfPatienceAdopted(s, turn{why: why, pause: followPause})
	}
	if durable < s.rg.Floor {
		return t.outOfPatienceAdopted(s, turn{why: t.whyBehind(s, durable), pause: followPause})
	}
	return t.readBack(s, log)
}

// whyNotVoter says what the promotion waits for; empty: nothing.
func (t *task) whyNotVoter(s scene, rep fsm.Replica) string {
	_, noLeader := t.leader(s)
	if s.rg.Lease.Holder == t.r.cfg.Self {
		noLeader = "" // it waits for nobody else then
	}
	if !rep.CanVote() {
		for _, v := range s.rg.Voters() {
			if v.Lost != "" {
				return orElse(noLeader, fmt.Sprintf("the lost voter %d on node %q has to go first", v.ID, v.Node))
			}
		}
		return orElse(noLeader, fmt.Sprintf("node %q, which leads, has not made replica %d a voter yet", s.rg.Lease.Holder, rep.ID))
	}
	if s.job.Replace == "" || s.job.Holes {
		return ""
	}
	for _, v := range s.rg.Voters() {
		if v.Node == s.job.Replace && v.ID < rep.ID { // one that came later is not meant
			return orElse(noLeader, fmt.Sprintf("replica %d on node %q, which it replaces, has not left the voters yet", v.ID, v.Node))
		}
	}
	return ""
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// readBack ends the job with the position that is on this disk.
func (t *task) readBack(s scene, log *storage.Log) turn {
	info := log.Info()
	t.p.LogEnd, t.p.Floor, t.p.Voter = info.End, s.rg.Floor, true
	gap, cause := t.p.Gap, t.p.Cause
	logStart := s.rg.LogStart
	if now, ok := t.r.cfg.Machine.State().Range(t.rng); ok { // the log may have followed it already
		logStart = now.LogStart
	}
	if missing := int64(info.Start - logStart); missing > 0 {
		gap += missing
		cause = joined(cause, fmt.Sprintf("the replica begins at %d, the range at %d", info.Start, logStart))
	}
	for _, hole := range log.Holes() {
		if hole.End <= logStart {
			continue // the next step of retention takes it
		}
		gap += int64(hole.End - max(hole.Base, logStart))
		cause = joined(cause, fmt.Sprintf("segment %d to %d is damaged: %s", hole.Base, hole.End, hole.Hole))
	}
	if gap > 0 {
		t.p.Gap = gap
		return turn{step: fsm.RepairDone, outcome: fsm.OutcomeGap, cause: orElse(cause, "offsets are missing")}
	}
	t.p.Cause = ""
	return turn{step: fsm.RepairDone, outcome: fsm.OutcomeWhole}
}

func joined(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, "; ")
}
