package kafka

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// A reassignment is not a thing of its own: it is repair jobs that bring replicas to nodes that have none, each in the
// place of a voter that is to go, and the order of preference that names the nodes wanted. The leader of the range does
// the rest as after any repair: a learner becomes a voter when it has everything, then the one in whose place it came
// goes, and so do voters on nodes that are not wanted once all that are wanted vote.

// reassignment is what one range needs to get to its target.
type reassignment struct {
	r vtop.Range
	// cancel are jobs that lead elsewhere; they end first. requests are jobs to bring what is missing.
	cancel   []fsm.RepairID
	requests []fsm.RepairRequest
	// preferred is the order of preference to be set last; nil leaves it.
	preferred []vtop.NodeName
}

// planReassignment says how a range gets its voters onto the target's nodes, in their order.
func planReassignment(state *fsm.State, rg *fsm.Range, target []vtop.NodeName, reason string) reassignment {
	plan := reassignment{r: rg.ID}
	voters := voterNodes(rg)
	var leaving []vtop.NodeName // voters to go in whose place nobody comes yet
	for _, n := range voters {
		if !slices.Contains(target, n) {
			leaving = append(leaving, n)
		}
	}
	coming := map[vtop.NodeName]bool{}
	for job := range movingJobs(state, rg) {
		fits := slices.Contains(target, job.Destination) && !slices.Contains(target, job.Replace)
		if !fits && job.Destination != job.Replace {
			plan.cancel = append(plan.cancel, job.ID)
			continue
		}
		coming[job.Destination] = true
		leaving = slices.DeleteFunc(leaving, func(n vtop.NodeName) bool { return n == job.Replace })
	}
	for _, n := range target {
		if slices.Contains(voters, n) || coming[n] {
			continue
		}
		q := fsm.RepairRequest{Range: rg.ID, Destination: n, Origin: fsm.OriginOperator, Reason: reason}
		if len(leaving) > 0 {
			q.Replace, leaving = leaving[0], leaving[1:]
		}
		plan.requests = append(plan.requests, q)
	}
	if !slices.Equal(rg.Preferred, target) {
		plan.preferred = target
	}
	return plan
}

// planCancel says how a range stays on the voters that it has; false if nothing is on its way.
func planCancel(state *fsm.State, rg *fsm.Range) (reassignment, bool) {
	plan := reassignment{r: rg.ID}
	m := movesOf(state, rg)
	if len(m.adding)+len(m.removing) == 0 {
		return plan, false
	}
	voters := voterNodes(rg)
	back := map[vtop.NodeName]vtop.NodeName{}
	for job := range movingJobs(state, rg) {
		plan.cancel = append(plan.cancel, job.ID)
		back[job.Destination] = job.Replace
	}
	var stay []vtop.NodeName
	keep := func(n vtop.NodeName) {
		if slices.Contains(voters, n) && !slices.Contains(stay, n) {
			stay = append(stay, n)
		}
	}
	for _, n := range rg.Preferred {
		if !slices.Contains(voters, n) {
			n = back[n]
		}
		keep(n)
	}
	for _, n := range voters {
		keep(n)
	}
	if !slices.Equal(stay, rg.Preferred) {
		plan.preferred = stay
	}
	return plan, true
}

// moves are the nodes that get a replica of a range and those that lose theirs, as things are on their way now.
type moves struct{ adding, removing []vtop.NodeName }

// movesOf reads them off the metadata, whoever wanted them: a client, an operator, a drain or the cluster's own healing. A
// replica that is rebuilt where it was does not move.
func movesOf(state *fsm.State, rg *fsm.Range) (m moves) {
	voters := voterNodes(rg)
	replaced := map[vtop.NodeName]bool{}
	for job := range movingJobs(state, rg) {
		if job.Destination == job.Replace {
			continue
		}
		replaced[job.Replace] = true
		if !slices.Contains(voters, job.Destination) && !slices.Contains(m.adding, job.Destination) {
			m.adding = append(m.adding, job.Destination)
		}
	}
	certain := len(rg.Preferred) > 0 // every node that is wanted votes, or is on its way
	for _, n := range rg.Preferred {
		certain = certain && (slices.Contains(voters, n) || slices.Contains(m.adding, n))
	}
	for _, n := range voters {
		if replaced[n] || certain && !slices.Contains(rg.Preferred, n) {
			m.removing = append(m.removing, n)
		}
	}
	return m
}

// movingJobs are the jobs under way that bring a replica, not those that fill holes.
func movingJobs(state *fsm.State, rg *fsm.Range) func(func(*fsm.RepairJob) bool) {
	return func(yield func(*fsm.RepairJob) bool) {
		for job := range state.ActiveRepairs(rg.ID) {
			if !job.Holes && !yield(job) {
				return
			}
		}
	}
}

func voterNodes(rg *fsm.Range) []vtop.NodeName {
	var out []vtop.NodeName
	for _, rep := range rg.Voters() {
		if !slices.Contains(out, rep.Node) {
			out = append(out, rep.Node)
		}
	}
	return out
}

// targetNodes checks the brokers that a client wants a range on.
func targetNodes(state *fsm.State, brokers []int32) ([]vtop.NodeName, error) {
	bad := func(format string, args ...any) ([]vtop.NodeName, error) {
		return nil, refuse(kerr.InvalidReplicaAssignment, fmt.Sprintf(format, args...))
	}
	if len(brokers) == 0 || len(brokers) > fsm.MaxReplicas {
		return bad("%d replicas: want 1 to %d", len(brokers), fsm.MaxReplicas)
	}
	var out []vtop.NodeName
	for _, id := range brokers {
		n, ok := state.NodeByBroker(vtop.BrokerID(id))
		switch {
		case id < 0 || !ok || n.State == fsm.NodeGone:
			return bad("there is no broker %d", id)
		case slices.Contains(out, n.Name):
			return bad("broker %d is named more than once", id)
		}
		out = append(out, n.Name)
	}
	return out, nil
}
