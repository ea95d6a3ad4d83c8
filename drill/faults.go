package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// target is what one blow is aimed at.
type target struct {
	node adminapi.Node
	// rng is the range that is meant; -1 for none.
	rng int32
	// to is where a lease or a replica goes.
	to string
	// replica is what the node had of the range before.
	replica uint64
	job     uint64
	what    string
	// until is when a pause ends, at the earliest: before, a node that answers has not been struck yet.
	until time.Time
	// missed is when the node was first seen again without what it lost.
	missed time.Time
}

// world is what a drill sees of the cluster before a blow.
type world struct {
	nodes  []adminapi.Node
	leases []adminapi.Lease
}

// errNobody: nothing can be struck just now.
var errNobody = errors.New("there is nothing to strike")

// fault is one kind of drill.
type fault struct {
	kind string
	// about says it in half a line.
	about string
	// strikes: a node strikes itself, so that it must have been started for it, and must be safe to stop.
	strikes bool
	// aim chooses the target of the n-th blow, from 0, beside those already aimed at.
	aim func(w *world, n int, beside []target) (target, error)
	// blow lets it fall.
	blow func(ctx context.Context, r *runner, t *target) error
	// over returns nil when the fault itself has passed; the replicas may not be whole yet.
	over func(ctx context.Context, r *runner, t *target) error
}

var faults = []fault{
	{kind: "leader-transfer", about: "move leases from node to node", aim: aimTransfer, blow: transfer, over: transferred},
	{kind: "leader-kill", about: "kill the node that leads a range (SIGKILL)", strikes: true, aim: aimLeader("kill -9 of %s, which leads range %d"), blow: strike(adminapi.DrillKill), over: returned},
	{kind: "leader-pause", about: "stop the node that leads a range for a while (SIGSTOP)", strikes: true, aim: aimLeader("pause of %s, which leads range %d"), blow: strike(adminapi.DrillPause), over: awake},
	{kind: "node-restart", about: "restart one node after the other (SIGTERM)", strikes: true, aim: aimNode, blow: strike(adminapi.DrillRestart), over: returned},
	{kind: "repair", about: "rebuild replicas on another node, with segments copied", aim: aimRepair, blow: submit, over: repaired},
	{kind: "wipe-replica", about: "take the files of a replica away, kill its node", strikes: true, aim: aimFollower, blow: strike(adminapi.DrillWipe), over: rebuilt},
}

// Kinds are the drills there are.
func Kinds() []string {
	var out []string
	for _, f := range faults {
		out = append(out, f.kind)
	}
	return out
}

// About says in half a line what a drill does.
func About(kind string) string { return faultOf(kind).about }

// Strikes reports whether nodes must have been started with --allow-drills for it.
func Strikes(kind string) bool { return faultOf(kind).strikes }

func faultOf(kind string) fault {
	for _, f := range faults {
		if f.kind == kind {
			return f
		}
	}
	return fault{}
}

func (w *world) node(name string) adminapi.Node {
	for _, n := range w.nodes {
		if n.Name == name {
			return n
		}
	}
	return adminapi.Node{Name: name}
}

// lease gives the range that the n-th blow is for, first of all.
func (w *world) lease(n int) *adminapi.Lease { return &w.leases[n%len(w.leases)] }

func aimed(beside []target, node string) bool {
	return slices.ContainsFunc(beside, func(t target) bool { return t.node.Name == node })
}

// aimTransfer moves the lease of one range after the other to the next voter that follows.
func aimTransfer(w *world, n int, beside []target) (target, error) {
	for i := range w.leases {
		l := w.lease(n + i)
		if slices.ContainsFunc(beside, func(t target) bool { return t.rng == l.Range }) {
			continue
		}
		at := slices.IndexFunc(l.Replicas, func(r adminapi.Replica) bool { return r.Node == l.Holder })
		for step := 1; step < len(l.Replicas); step++ {
			r := l.Replicas[(at+step)%len(l.Replicas)]
			if r.Role == "voter" && r.State == "following" && r.Node != l.Holder {
				return target{node: w.node(l.Holder), rng: l.Range, to: r.Node, what: fmt.Sprintf("lease of range %d from %s to %s", l.Range, l.Holder, r.Node)}, nil
			}
		}
	}
	return target{}, fmt.Errorf("%w: no range has a voter that follows beside its leader", errNobody)
}

// aimLeader takes the holder of one range after the other, of those that allow it.
func aimLeader(what string) func(*world, int, []target) (target, error) {
	return func(w *world, n int, beside []target) (target, error) {
		for i := range w.leases {
			l := w.lease(n + i)
			if node := w.node(l.Holder); node.AllowsDrills && !aimed(beside, node.Name) {
				return target{node: node, rng: l.Range, what: fmt.Sprintf(what, node.Name, l.Range)}, nil
			}
		}
		return target{}, fmt.Errorf("%w: no range is led by a node that allows drills", errNobody)
	}
}

func aimNode(w *world, n int, beside []target) (target, error) {
	for i := range w.nodes {
		node := w.nodes[(n+i)%len(w.nodes)]
		if node.AllowsDrills && node.Alive && node.State != "gone" && !aimed(beside, node.Name) {
			return target{node: node, rng: -1, what: "restart of " + node.Name}, nil
		}
	}
	return target{}, fmt.Errorf("%w: no node that lives allows drills", errNobody)
}

// follower gives a voter of l that follows and is wanted, another one with each n.
func follower(l *adminapi.Lease, n int, want func(adminapi.Replica) bool) (adminapi.Replica, bool) {
	var all []adminapi.Replica
	for _, r := range l.Replicas {
		if r.Node != l.Holder && r.Role == "voter" && r.State == "following" && want(r) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return adminapi.Replica{}, false
	}
	return all[n%len(all)], true
}

// aimFollower takes a follower: what it loses is on a majority without it.
func aimFollower(w *world, n int, beside []target) (target, error) {
	for i := range w.leases {
		l := w.lease(n + i)
		if len(l.Replicas) < 3 {
			continue
		}
		r, ok := follower(l, n/len(w.leases), func(r adminapi.Replica) bool { return w.node(r.Node).AllowsDrills && !aimed(beside, r.Node) })
		if ok {
			return target{node: w.node(r.Node), rng: l.Range, replica: r.ReplicaID, what: fmt.Sprintf("wipe of the replica of range %d on %s", l.Range, r.Node)}, nil
		}
	}
	return target{}, fmt.Errorf("%w: no range of three replicas has a follower on a node that allows drills", errNobody)
}

// aimRepair has a follower's replica rebuilt on a node that has none.
func aimRepair(w *world, n int, beside []target) (target, error) {
	for i := range w.leases {
		l := w.lease(n + i)
		if slices.ContainsFunc(beside, func(t target) bool { return t.rng == l.Range }) {
			continue
		}
		var spare []string
		for _, node := range w.nodes {
			has := slices.ContainsFunc(l.Replicas, func(r adminapi.Replica) bool { return r.Node == node.Name })
			if node.Alive && node.State == "active" && !has {
				spare = append(spare, node.Name)
			}
		}
		r, ok := follower(l, n/len(w.leases), func(adminapi.Replica) bool { return true })
		if !ok || len(spare) == 0 {
			continue
		}
		to := spare[n%len(spare)]
		return target{node: w.node(r.Node), rng: l.Range, to: to, replica: r.ReplicaID, what: fmt.Sprintf("replica of range %d from %s to %s", l.Range, r.Node, to)}, nil
	}
	return target{}, fmt.Errorf("%w: every node has a replica of every range; a repair drill wants a node that has none", errNobody)
}

func transfer(ctx context.Context, r *runner, t *target) error {
	_, err := r.admin.TransferLease(ctx, r.topic, t.rng, t.to)
	return err
}

// transferred: the cluster may move a lease on, so that it is enough that the range is led.
func transferred(ctx context.Context, r *runner, t *target) error {
	l, err := r.lease(ctx, t.rng)
	if err == nil && l.State != "serving" {
		err = fmt.Errorf("range %d is %s: %s", t.rng, l.State, l.Reason)
	}
	return err
}

func strike(what string) func(context.Context, *runner, *target) error {
	return func(ctx context.Context, r *runner, t *target) error {
		req := adminapi.DrillRequest{Node: t.node.Name, Fault: what}
		switch what {
		case adminapi.DrillPause:
			req.PauseMS = r.cfg.Pause.Milliseconds()
		case adminapi.DrillWipe:
			req.Topic, req.Range = r.topic, t.rng
		}
		asked := time.Now()
		res, err := r.admin.Drill(ctx, t.node, req)
		t.until = asked.Add(time.Duration(req.PauseMS) * time.Millisecond)
		if err == nil {
			t.until = time.Now().Add(time.Duration(req.PauseMS+res.InMS) * time.Millisecond)
		}
		return err
	}
}

// returned: another life of the node is there, and hears the others.
func returned(ctx context.Context, r *runner, t *target) error {
	n, err := r.node(ctx, t.node.Name)
	switch {
	case err != nil:
		return err
	case n.Incarnation <= t.node.Incarnation:
		return fmt.Errorf("%s has not come back; who starts it again: %s", n.Name, dash(t.node.ReturnsBy))
	case !n.Alive || !n.AllowsDrills:
		return fmt.Errorf("%s has come back and does not answer yet", n.Name)
	}
	return nil
}

// awake: the pause is over, and the node answers with its own voice. That a paused one still counts as alive says nothing.
func awake(ctx context.Context, r *runner, t *target) error {
	if left := time.Until(t.until); left > 0 {
		return fmt.Errorf("%s is paused for another %s", t.node.Name, left.Round(time.Millisecond))
	}
	n, err := r.node(ctx, t.node.Name)
	if err == nil && (!n.Alive || !n.AllowsDrills) {
		err = fmt.Errorf("%s does not answer yet", n.Name)
	}
	return err
}

// rebuildAfter is how long the cluster may take to rebuild a lost replica by itself before it is asked to: healing may be
// paused.
const rebuildAfter = 20 * time.Second

// rebuilt: the node has another replica that votes.
func rebuilt(ctx context.Context, r *runner, t *target) error {
	if err := returned(ctx, r, t); err != nil {
		return err
	}
	l, err := r.lease(ctx, t.rng)
	if err != nil {
		return err
	}
	for _, rep := range l.Replicas {
		if rep.Node == t.node.Name && rep.ReplicaID > t.replica && rep.Role == "voter" {
			return nil
		}
	}
	switch {
	case t.missed.IsZero():
		t.missed = time.Now()
	case t.job == 0 && time.Since(t.missed) > rebuildAfter:
		jobs, err := r.admin.SubmitRepairs(ctx, adminapi.RepairRequest{Topic: r.topic, Range: t.rng, Destination: t.node.Name})
		if err == nil && len(jobs) == 1 && jobs[0].ID != 0 {
			t.job = jobs[0].ID
			r.note("the replica of range %d on %s was not rebuilt by itself within %s: a repair was asked for", t.rng, t.node.Name, rebuildAfter)
		}
	}
	return fmt.Errorf("%s has no new replica of range %d that votes", t.node.Name, t.rng)
}

func submit(ctx context.Context, r *runner, t *target) error {
	jobs, err := r.admin.SubmitRepairs(ctx, adminapi.RepairRequest{Topic: r.topic, Range: t.rng, Destination: t.to, Replaces: t.node.Name, SealTail: true})
	switch {
	case err != nil:
		return err
	case len(jobs) != 1 || jobs[0].ID == 0:
		return fmt.Errorf("the repair did not start: %+v", jobs)
	}
	t.job = jobs[0].ID
	return nil
}

// repaired: the job has ended, and what was read back is whole.
func repaired(ctx context.Context, r *runner, t *target) error {
	j, err := r.admin.Repair(ctx, t.job)
	if err != nil {
		return err
	}
	switch {
	case !j.Ended():
		return fmt.Errorf("repair %d is %s", j.ID, strings.TrimSpace(j.Step+" "+j.Waiting))
	case j.Outcome == adminapi.OutcomeCancelled:
		return nil
	case j.Outcome != adminapi.OutcomeWhole || !j.Voter || j.Gap != 0:
		return &final{fmt.Errorf("repair %d ended %s: %s", j.ID, dash(j.Outcome), dash(j.Cause))}
	}
	return nil
}

// final is an error that waiting does not heal.
type final struct{ error }

func (f *final) Unwrap() error { return f.error }
