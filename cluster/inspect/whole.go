package inspect

import (
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// Problems of a replica whose log cannot be used now; their subject is the range, until status adds the node.
const (
	kindQuarantined = "quarantined"
	kindFailed      = "replica_failed"
)

// ailing says what a replica's own node says is wrong with it, beside holes: it is failed, lost, quarantined, or idle while its range
// is served. Empty if nothing is known to be.
func (p *picture) ailing(node vtop.NodeName, r *fsm.Range) string {
	if problem, ok := p.problem(node, r, kindQuarantined, kindFailed); ok {
		return fmt.Sprintf("%s: %s", problem.Kind, problem.Message)
	}
	own, leader := p.ranges[node][r.ID], p.leader(r)
	if own == nil {
		return ""
	}
	idle := own.Role == "idle" && leader != nil && leader.Role == "leading"
	if !idle && own.Role != "failed" && own.Role != "lost" {
		return ""
	}
	why := own.Reason
	if why == "" {
		why = "its node gives no reason"
	}
	return fmt.Sprintf("it is %s: %s", own.Role, why)
}

// damage says what is damaged in the node's replica of a range; empty if nothing is known to be.
func (p *picture) damage(node vtop.NodeName, r *fsm.Range) string {
	problem, _ := p.problem(node, r, kindDamaged)
	return problem.Message
}

// problem is the first of some kinds that a node tells of its replica of a range.
func (p *picture) problem(node vtop.NodeName, r *fsm.Range, kinds ...string) (adminapi.Problem, bool) {
	local := p.locals[node]
	if local == nil {
		return adminapi.Problem{}, false
	}
	name := p.state.RangeName(r.ID)
	for _, problem := range local.Problems {
		if problem.Subject == name && slices.Contains(kinds, problem.Kind) {
			return problem, true
		}
	}
	return adminapi.Problem{}, false
}
