package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/placement"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

var _ adminapi.NodeHandler = (*Face)(nil)

// alive is the Raft leader's verdict, by which leases are given; without one, whether the node answered just now.
func (p *picture) alive(name vtop.NodeName) bool {
	if v, ok := p.verdicts()[name]; ok {
		return v.Alive
	}
	return p.locals[name] != nil
}

// answers is what a replica says of itself; nil if it does not. A node that claims the name of another, with another
// disk, answers at the same address and has no such replica.
func (p *picture) answers(r *fsm.Range, rep fsm.Replica) *adminapi.LocalRange {
	if own := p.ranges[rep.Node][r.ID]; own != nil && own.ReplicaID == uint64(rep.ID) {
		return own
	}
	return nil
}

// sites are the nodes that may take replicas, and the racks of all.
func (p *picture) sites() ([]placement.Site, map[vtop.NodeName]string) {
	var out []placement.Site
	racks := map[vtop.NodeName]string{}
	for n := range p.state.Nodes() {
		racks[n.Name] = n.Rack
		if n.State != fsm.NodeActive || !p.alive(n.Name) {
			continue
		}
		site := placement.Site{Name: n.Name, Rack: n.Rack}
		for range p.state.RangesOf(n.Name) {
			site.Replicas++
		}
		out = append(out, site)
	}
	return out, racks
}

// homeless says of each replica of a node for which no job is under way why it has nowhere to go; those that have are
// left out.
func (p *picture) homeless(node vtop.NodeName) []adminapi.Reason {
	out := []adminapi.Reason{}
	sites, racks := p.sites()
	for r := range p.state.RangesOf(node) {
		if len(jobsReplacing(p.state, r.ID, node)) > 0 {
			continue
		}
		var have []vtop.NodeName
		for _, rep := range r.Replicas {
			have = append(have, rep.Node)
		}
		if _, why := placement.Home(sites, racks, have, node); why != "" {
			out = append(out, adminapi.Reason{
				Subject: p.state.RangeName(r.ID), Message: why,
				Hint: "add a node, or bring one back that is down; a replica that is not needed goes with its topic",
			})
		}
	}
	return out
}

func jobsReplacing(state *fsm.State, r vtop.Range, node vtop.NodeName) []uint64 {
	var out []uint64
	for j := range state.ActiveRepairs(r) {
		if j.Replace == node {
			out = append(out, uint64(j.ID))
		}
	}
	return out
}

// DrainNode implements adminapi.NodeHandler. Leases and replicas are moved by the Raft leader while the node is draining.
func (f *Face) DrainNode(ctx context.Context, node string, req adminapi.DrainRequest) (*adminapi.DrainResult, error) {
	p, err := f.look(ctx, noTopic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return p.drain(ctx, node, req)
}

func (p *picture) drain(ctx context.Context, node string, req adminapi.DrainRequest) (*adminapi.DrainResult, error) {
	name := vtop.NodeName(node)
	n, ok := p.state.Node(name)
	switch {
	case !ok:
		return nil, noNode(node)
	case n.State == fsm.NodeGone && req.Cancel:
		return nil, adminapi.Errorf(adminapi.CodeConflict, "node %s was removed", node).WithHint("start vtopd with a new name and an empty directory")
	case n.State == fsm.NodeGone || req.DryRun:
		return p.drainStatus(node)
	}
	state := fsm.NodeDraining
	if req.Cancel {
		state = fsm.NodeActive
	}
	if n.State != state {
		if err := p.node.SetNodeState(ctx, name, state); err != nil {
			return nil, refusal(err)
		}
	}
	if req.Cancel {
		if err := p.stopDrain(ctx, name); err != nil {
			return nil, err
		}
	}
	p.state = p.node.State()
	return p.drainStatus(node)
}

// stopDrain ends the jobs that empty a node, and those alone.
func (p *picture) stopDrain(ctx context.Context, node vtop.NodeName) error {
	var ids []fsm.RepairID
	for j := range p.node.State().Repairs() {
		if j.Active() && j.Origin == fsm.OriginDrain && j.Replace == node {
			ids = append(ids, j.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := p.node.CancelRepairs(ctx, ids, fmt.Sprintf("the drain of %s was cancelled", node))
	return refusal(err)
}

// DrainStatus implements adminapi.NodeHandler.
func (f *Face) DrainStatus(ctx context.Context, node string) (*adminapi.DrainResult, error) {
	p, err := f.look(ctx, noTopic)
	if err != nil {
		return nil, err
	}
	return p.drainStatus(node)
}

func (p *picture) drainStatus(node string) (*adminapi.DrainResult, error) {
	name := vtop.NodeName(node)
	n, ok := p.state.Node(name)
	if !ok {
		return nil, noNode(node)
	}
	out := &adminapi.DrainResult{Node: node, State: n.State.String(), Repairs: []uint64{}, Stuck: p.homeless(name)}
	for range p.state.LeasesOf(name) {
		out.LeasesLeft++
	}
	for r := range p.state.RangesOf(name) {
		out.ReplicasLeft++
		out.Repairs = append(out.Repairs, jobsReplacing(p.state, r.ID, name)...)
	}
	out.Done = n.State != fsm.NodeActive && out.LeasesLeft == 0 && out.ReplicasLeft == 0
	return out, nil
}

// RemoveNode implements adminapi.NodeHandler. A node that has anything left is not removed, whatever it is (L4 of the
// faults): so no removal takes the last copy of a range.
func (f *Face) RemoveNode(ctx context.Context, node string) (*adminapi.RemoveResult, error) {
	p, err := f.look(ctx, noTopic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return p.remove(ctx, node)
}

func (p *picture) remove(ctx context.Context, node string) (*adminapi.RemoveResult, error) {
	name := vtop.NodeName(node)
	n, ok := p.state.Node(name)
	if !ok {
		return nil, noNode(node)
	}
	out := &adminapi.RemoveResult{Node: node, Left: leftOn(p.state, name)}
	if len(out.Left) > 0 {
		return out, nil
	}
	if n.State == fsm.NodeActive && p.alive(name) {
		return nil, adminapi.Errorf(adminapi.CodeConflict, "node %s is alive and active: it would be given replicas while it is removed", node).
			WithHint("vtopctl node drain %s first, then stop it, then remove it", node)
	}
	err := p.node.RemoveNode(ctx, name)
	var r *fsm.Refusal
	if errors.As(err, &r) && r.Code == fsm.CodeInUse {
		out.Left = append(leftOn(p.node.State(), name), adminapi.Reason{Subject: node, Message: r.Message})
		return out, nil
	}
	if err != nil {
		return nil, refusal(err)
	}
	out.Removed = true
	return out, nil
}

// leftOn lists what only the ranges' leaders can take from a node. Learners count for nothing and go with it.
func leftOn(state *fsm.State, node vtop.NodeName) []adminapi.Reason {
	out := []adminapi.Reason{}
	for r := range state.LeasesOf(node) {
		out = append(out, adminapi.Reason{Subject: state.RangeName(r.ID), Message: "its lease is here", Hint: fmt.Sprintf("vtopctl node drain %s", node)})
	}
	for r := range state.RangesOf(node) {
		voters := r.Voters()
		if !slices.ContainsFunc(voters, func(rep fsm.Replica) bool { return rep.Node == node }) {
			continue
		}
		reason := adminapi.Reason{
			Subject: state.RangeName(r.ID), Message: fmt.Sprintf("one of its %d voters is here", len(voters)),
			Hint: fmt.Sprintf("vtopctl node drain %s; if it is dead: vtopctl repair %s --node OTHER --replace %s", node, state.RangeName(r.ID), node),
		}
		if len(voters) == 1 {
			reason.Message = "its only voter is here: the range would be lost"
			reason.Hint = fmt.Sprintf("vtopctl node drain %s while it is alive; or delete the topic", node)
		}
		out = append(out, reason)
	}
	return out
}

// ReplaceNode implements adminapi.NodeHandler.
func (f *Face) ReplaceNode(ctx context.Context, node string, req adminapi.ReplaceRequest) (*adminapi.ReplaceResult, error) {
	p, err := f.look(ctx, "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return p.replace(ctx, vtop.NodeName(node), vtop.NodeName(req.With), req.DryRun)
}

func (p *picture) replace(ctx context.Context, node, with vtop.NodeName, dryRun bool) (*adminapi.ReplaceResult, error) {
	old, ok := p.state.Node(node)
	if !ok {
		return nil, noNode(string(node))
	}
	out := &adminapi.ReplaceResult{Node: string(node), With: string(with), Repairs: []adminapi.Repair{}}
	if node == with {
		out.Admitted = true
		if err := p.admit(ctx, old, dryRun); err != nil {
			return out, err
		}
		return out, p.rebuild(ctx, node, dryRun, out)
	}
	if n, ok := p.state.Node(with); !ok || n.State == fsm.NodeGone {
		return nil, noNode(string(with))
	} else if n.State == fsm.NodeDraining {
		return nil, adminapi.Errorf(adminapi.CodeConflict, "node %s is draining: it takes no replica", with).WithHint("vtopctl node drain %s --cancel", with)
	}
	var wishes []wish
	for r := range p.state.RangesOf(node) {
		wishes = append(wishes, p.takeover(r, node, with))
	}
	done, err := p.carryOut(ctx, wishes, dryRun)
	if err != nil {
		return nil, err
	}
	for _, c := range done {
		out.Repairs = append(out.Repairs, c.repair)
	}
	if !dryRun && old.State == fsm.NodeActive {
		// The jobs come first: what drains finds them, and gives no second home to what has one.
		err = p.node.SetNodeState(ctx, node, fsm.NodeDraining)
	}
	return out, refusal(err)
}

// admit gives the name to the data directory that claimed it last.
func (p *picture) admit(ctx context.Context, old *fsm.Node, dryRun bool) error {
	if len(old.Pending) == 0 {
		return adminapi.Errorf(adminapi.CodeConflict, "no other data directory claims the name %s", old.Name).
			WithHint("start vtopd on the new machine under that name, and look for it in vtopctl status; or name another node: vtopctl node replace %s NEW", old.Name)
	}
	if p.alive(old.Name) { // by the Raft leader's word: at its address the claimant answers
		return adminapi.Errorf(adminapi.CodeConflict, "the node that has the name %s is alive, with storage %s", old.Name, old.Storage).
			WithHint("stop it first, if it is the one that is to go")
	}
	if dryRun {
		return nil
	}
	claim := old.Pending[len(old.Pending)-1]
	return refusal(p.node.AdmitPending(ctx, old.Name, claim.Storage, fmt.Sprintf("an operator at %s asked for it", p.node.Self())))
}

// rebuild has all replicas rebuilt that the node lost with the disk that it was admitted without: an operator has asked for it, so
// that a pause of healing does not matter. A range that was never written has nothing to copy; its leader gives it a replica.
func (p *picture) rebuild(ctx context.Context, node vtop.NodeName, dryRun bool, out *adminapi.ReplaceResult) error {
	p.state = p.node.State()
	var wishes []wish
	for r := range p.state.RangesOf(node) {
		if p.empty(r) || !slices.ContainsFunc(r.Voters(), func(rep fsm.Replica) bool { return rep.Node == node }) {
			continue
		}
		wishes = append(wishes, wish{r: r, q: fsm.RepairRequest{
			Range: r.ID, Destination: node, Replace: node, Origin: fsm.OriginReplace, Reason: fmt.Sprintf("%s was admitted with another disk", node),
		}})
	}
	if dryRun { // nothing is lost yet: the metadata would call it whole
		for _, w := range wishes {
			out.Repairs = append(out.Repairs, p.plan(w))
		}
		return nil
	}
	done, err := p.carryOut(ctx, wishes, false)
	for _, c := range done {
		out.Repairs = append(out.Repairs, c.repair)
	}
	return refusal(err)
}

// takeover has one range's replica move from a node to another.
func (p *picture) takeover(r *fsm.Range, node, with vtop.NodeName) wish {
	w := wish{r: r, q: fsm.RepairRequest{
		Range: r.ID, Destination: with, Replace: node, Origin: fsm.OriginReplace, Reason: fmt.Sprintf("%s takes the place of %s", with, node),
	}}
	if !slices.ContainsFunc(r.Voters(), func(rep fsm.Replica) bool { return rep.Node == node }) {
		w.q.Replace = "" // a learner goes with its node
	}
	if rep, ok := r.VoterOn(with); ok {
		w.err = adminapi.Errorf(adminapi.CodeConflict, "%s has a voter of it already (replica %d): without that of %s there would be one fewer", with, rep.ID, node).
			WithHint("vtopctl node drain %s finds another node for it", node)
	}
	return w
}
