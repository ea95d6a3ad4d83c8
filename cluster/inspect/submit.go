package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// SubmitRepairs implements adminapi.RepairHandler.
func (f *Face) SubmitRepairs(ctx context.Context, req adminapi.RepairRequest) ([]adminapi.Repair, error) {
	p, err := f.look(ctx, req.Topic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return p.submitRepairs(ctx, req)
}

// wish is one repair that is asked for, and what is known of it before the metadata is asked.
type wish struct {
	r *fsm.Range
	q fsm.RepairRequest
	// nothing says that there is nothing to repair; err that it may not be done.
	nothing string
	err     error
}

// submitRepairs asks for one range, where a refusal is the call's, or for all of a node, where each has its own.
func (p *picture) submitRepairs(ctx context.Context, req adminapi.RepairRequest) ([]adminapi.Repair, error) {
	dest, ok := p.state.Node(vtop.NodeName(req.Destination))
	if !ok || dest.State == fsm.NodeGone {
		return nil, noNode(req.Destination)
	}
	var wishes []wish
	if req.All {
		if p.locals[dest.Name] == nil {
			return nil, adminapi.Errorf(adminapi.CodeUnavailable, "node %s does not answer: which of its replicas are whole can't be known", dest.Name).
				WithHint("start vtopd there; or name a range, and another node as destination with --replace %s", dest.Name)
		}
		wishes = p.wishesOf(dest.Name, req)
	} else {
		_, r, err := rangeNamed(p.state, req.Topic, req.Range)
		if err != nil {
			return nil, err
		}
		w := p.wish(r, req)
		if w.err != nil {
			return nil, w.err
		}
		wishes = []wish{w}
	}
	out, err := p.carryOut(ctx, wishes, req.DryRun)
	if err == nil && !req.All && len(out) == 1 && out[0].err != nil {
		err = out[0].err
	}
	if err != nil {
		return nil, err
	}
	repairs := make([]adminapi.Repair, 0, len(out))
	for _, o := range out {
		repairs = append(repairs, o.repair)
	}
	return repairs, nil
}

func noNode(name string) error {
	return adminapi.Errorf(adminapi.CodeNotFound, "there is no node %q", name).WithHint("vtopctl node list shows the nodes")
}

// wishesOf are the repairs of all replicas of a node that are not whole.
func (p *picture) wishesOf(dest vtop.NodeName, req adminapi.RepairRequest) []wish {
	var out []wish
	for r := range p.state.RangesOf(dest) {
		if _, votes := r.VoterOn(dest); votes && p.damage(dest, r) == "" && p.ailing(dest, r) == "" {
			continue
		}
		out = append(out, p.wish(r, req))
	}
	return out
}

// wish says what has to be done to a range's replica on the destination.
func (p *picture) wish(r *fsm.Range, req adminapi.RepairRequest) wish {
	name := p.state.RangeName(r.ID)
	w := wish{r: r, q: fsm.RepairRequest{
		Range: r.ID, Destination: vtop.NodeName(req.Destination), Replace: vtop.NodeName(req.Replaces), SealTail: req.SealTail,
		MaxRate: req.MaxRate, Origin: fsm.OriginOperator, Reason: fmt.Sprintf("asked for at %s", p.node.Self()),
	}}
	for _, s := range req.Sources {
		w.q.Sources = append(w.q.Sources, vtop.NodeName(s))
	}
	if job, ok := p.state.ActiveRepair(r.ID, w.q.Destination); ok {
		w.err = joins(job, w.q, name) // that one is meant, if it is what is asked for
		return w
	}
	if w.err = p.sourcesVote(r, w.q.Sources, name); w.err != nil {
		return w
	}
	rep, votes := r.VoterOn(w.q.Destination)
	damage, ailing := p.damage(w.q.Destination, r), p.ailing(w.q.Destination, r)
	switch {
	case votes && p.answers(r, rep) == nil:
		w.err = adminapi.Errorf(adminapi.CodeUnavailable, "replica %d of %s on %s votes, and does not answer: whether it is whole can't be known", rep.ID, name, rep.Node).
			WithHint("start vtopd there, and it catches up; or rebuild it elsewhere: vtopctl repair %s --node OTHER --replace %s", name, rep.Node)
	case votes && damage != "":
		w.q.Holes, w.q.Replace, w.q.Reason = true, "", w.q.Reason+": "+damage
	case votes && w.q.Replace != "" && w.q.Replace != rep.Node && votesToo(r, w.q.Replace):
		w.err = adminapi.Errorf(adminapi.CodeConflict, "replica %d of %s on %s votes already, and so does that of %s: there is nothing to rebuild, and a repair takes no vote away", rep.ID, name, rep.Node, w.q.Replace).
			WithHint("rebuild it on a node without one, with --replace %s; or vtopctl node drain %s", w.q.Replace, w.q.Replace)
	case votes && ailing != "":
		w.err = adminapi.Errorf(adminapi.CodeConflict, "replica %d of %s on %s votes, and cannot be used now: %s", rep.ID, name, rep.Node, ailing).
			WithHint("vtopctl status tells what its node says; or rebuild it elsewhere: vtopctl repair %s --node OTHER --replace %s", name, rep.Node)
	case votes:
		w.nothing = fmt.Sprintf("replica %d of %s on %s votes and is whole: nothing to repair", rep.ID, name, rep.Node)
	case p.empty(r):
		w.err = neverWritten(p.topicOf(r), r.ID.Index)
	}
	return w
}

func votesToo(r *fsm.Range, node vtop.NodeName) bool {
	_, ok := r.VoterOn(node)
	return ok
}

// joins says whether the job that is under way is what is asked for; what was not asked for in particular is left to the job.
func joins(job *fsm.RepairJob, q fsm.RepairRequest, name string) error {
	var other []string
	if q.Replace != "" && q.Replace != job.Replace {
		other = append(other, fmt.Sprintf("--replace %s (it has %q)", q.Replace, job.Replace))
	}
	if q.SealTail && !job.SealTail {
		other = append(other, "--seal-tail (it seals nothing)")
	}
	if q.MaxRate != 0 && q.MaxRate != job.MaxRate {
		other = append(other, fmt.Sprintf("--max-rate %d bytes a second (it has %d)", q.MaxRate, job.MaxRate))
	}
	if len(q.Sources) > 0 && !slices.Equal(slices.Sorted(slices.Values(q.Sources)), slices.Sorted(slices.Values(job.Sources))) {
		other = append(other, fmt.Sprintf("--source %v (it has %v)", q.Sources, job.Sources))
	}
	if len(other) == 0 {
		return nil
	}
	return adminapi.Errorf(adminapi.CodeConflict, "repair %d brings %s to %s already (%s), without %s", job.ID, name, job.Destination, job.Step, strings.Join(other, ", ")).
		WithHint("leave that out to join it; or vtopctl repair cancel %d, and ask again", job.ID)
}

// sourcesVote refuses sources that have nothing to give: a wait for them would have no end.
func (p *picture) sourcesVote(r *fsm.Range, sources []vtop.NodeName, name string) error {
	for _, node := range sources {
		if _, known := p.state.Node(node); known && !votesToo(r, node) {
			return adminapi.Errorf(adminapi.CodeConflict, "--source %s: that node has no voter of %s to copy from", node, name).
				WithHint("vtopctl lease show %s lists its replicas; without --source all whole voters give", name)
		}
	}
	return nil
}

// empty reports whether a range has no record and never had one, as far as is known.
func (p *picture) empty(r *fsm.Range) bool {
	if !r.EverStarted() {
		return true
	}
	leader := p.leader(r)
	return r.Floor == 0 && r.CatalogueEnd == 0 && r.LogEnd <= 0 && leader != nil && leader.LogEnd == 0
}

func (p *picture) topicOf(r *fsm.Range) string {
	if t, ok := p.state.Topic(r.ID.Topic); ok {
		return t.Name
	}
	return r.ID.Topic.String()
}

// carried is what became of a wish.
type carried struct {
	repair adminapi.Repair
	err    error
}

// carryOut proposes what is left to be done, or in a dry run tries it on a copy of the state.
func (p *picture) carryOut(ctx context.Context, wishes []wish, dryRun bool) ([]carried, error) {
	out := make([]carried, len(wishes))
	var ask []fsm.RepairRequest
	var at []int
	for i, w := range wishes {
		switch {
		case w.err != nil:
			out[i] = p.refused(w, w.err)
		case w.nothing != "":
			out[i] = carried{repair: p.wholeAlready(w)}
		default:
			ask, at = append(ask, w.q), append(at, i)
		}
	}
	if len(ask) == 0 {
		return out, nil
	}
	var items []fsm.Item
	var err error
	if dryRun {
		items, err = p.try(ask)
	} else {
		items, err = p.node.SubmitRepairs(ctx, ask)
	}
	if err != nil {
		return nil, refusal(err)
	}
	for k, item := range items {
		out[at[k]] = p.submitted(wishes[at[k]], item, dryRun)
	}
	return out, nil
}

// try asks the rules of the metadata, and changes nothing: a State is never changed, what is applied to it gives another.
func (p *picture) try(ask []fsm.RepairRequest) ([]fsm.Item, error) {
	cmd := &fsm.SubmitRepairs{Items: ask}
	if err := cmd.Check(); err != nil {
		return nil, err
	}
	_, outs := p.state.Apply(p.state.Index()+1, cmd)
	return outs[0].Items, outs[0].Err()
}

// submitted says what the metadata answered to a wish.
func (p *picture) submitted(w wish, item fsm.Item, dryRun bool) carried {
	var r *fsm.Refusal
	if err := item.Err(); errors.As(err, &r) {
		if r.Code == fsm.CodeWhole {
			w.nothing = r.Message
			return carried{repair: p.wholeAlready(w)}
		}
		return p.refused(w, repairRefusal(r))
	}
	state := p.node.State()
	if dryRun {
		state = p.state
	}
	j, ok := state.Repair(item.Repair)
	switch {
	case !ok:
		return carried{repair: p.plan(w)}
	case dryRun: // it is under way, and the repair would join it
		out := describeRepair(j, p.alive)
		out.Outcome = adminapi.OutcomePlanned
		out.Reason = fmt.Sprintf("repair %d is under way already: the same would be joined; %s", j.ID, out.Reason)
		return carried{repair: out}
	}
	return carried{repair: describeRepair(j, p.alive)}
}

// repairRefusal adds what to do.
func repairRefusal(r *fsm.Refusal) error {
	switch r.Code {
	case fsm.CodeNoSource:
		return adminapi.Errorf(adminapi.CodeNoSource, "%s", r.Message).
			WithHint("bring a node with a whole replica back; if none will ever come back: vtopctl range recover --dry-run")
	case fsm.CodeUnknownReplica:
		return adminapi.Errorf(adminapi.CodeConflict, "%s", r.Message).WithHint("vtopctl lease show lists the replicas of the range")
	case fsm.CodeConflict:
		return adminapi.Errorf(adminapi.CodeConflict, "%s", r.Message).
			WithHint("name another destination; or end what is in the way: vtopctl node drain NODE --cancel, repair cancel, heal resume")
	case fsm.CodeLimit:
		return adminapi.Errorf(adminapi.CodeUnavailable, "%s", r.Message).WithHint("vtopctl repair list shows them")
	}
	return refusal(r)
}

func (p *picture) blank(w wish) adminapi.Repair {
	out := describeRepair(&fsm.RepairJob{RepairRequest: w.q, Name: p.state.RangeName(w.r.ID), Attempts: 1, RepairProgress: fsm.NewRepairProgress()}, p.alive)
	out.Step = ""
	return out
}

// refused is a wish that was not taken.
func (p *picture) refused(w wish, err error) carried {
	out := p.blank(w)
	out.Step, out.Outcome, out.Cause = adminapi.StepFailed, adminapi.OutcomeRefused, err.Error()
	return carried{out, err}
}

// wholeAlready is a wish that had come true, with what the replica itself says of its position.
func (p *picture) wholeAlready(w wish) adminapi.Repair {
	out := p.blank(w)
	out.Step, out.Outcome, out.Cause = adminapi.StepDone, adminapi.OutcomeNothingToRepair, w.nothing
	out.SealedEnd, out.Floor = int64(w.r.CatalogueEnd), int64(w.r.Floor)
	if rep, ok := w.r.VoterOn(w.q.Destination); ok {
		out.ReplicaID, out.Voter = uint64(rep.ID), true
		if own := p.answers(w.r, rep); own != nil {
			out.LogEnd, out.Gap = own.DurableEnd, max(0, out.Floor-own.DurableEnd)
		}
	}
	if out.Gap > 0 {
		out.Cause = fmt.Sprintf("%s; it is %d behind the floor and catches up from the leader's log by itself", out.Cause, out.Gap)
	}
	return out
}

// plan is what a dry run says: at most what the catalogue holds, since only the destination knows what it has.
func (p *picture) plan(w wish) adminapi.Repair {
	out := p.blank(w)
	out.Outcome, out.SealedEnd = adminapi.OutcomePlanned, int64(max(w.r.CatalogueEnd, w.r.LogStart))
	for seg := range p.state.Catalogue(w.r.ID) {
		if seg.End > w.r.LogStart && !w.q.Holes {
			out.Segments++
			out.Bytes += seg.Bytes
		}
	}
	out.BytesTotal = out.Bytes
	for _, rep := range w.r.Replicas {
		if rep.CanVote() && rep.Node != w.q.Destination && p.answers(w.r, rep) != nil && (len(w.q.Sources) == 0 || slices.Contains(w.q.Sources, rep.Node)) {
			out.Sources = append(out.Sources, string(rep.Node))
		}
	}
	out.Reason = "segments that the destination still has whole are not copied again"
	if w.q.Holes {
		out.Reason = w.q.Reason + "; that segment alone is replaced"
	}
	if len(out.Sources) == 0 {
		out.Waiting = "no node with a whole replica answers now"
	}
	return out
}
