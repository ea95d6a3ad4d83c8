package inspect

import (
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// Problems of a replica whose log cannot be used now; their subject is the range, until status adds the node.
const (
	kindQuarantined = "quarantined"
	kindFailed      = "replica_failed"
)

// ailing says what a replica's own node says is wrong with it, beside holes: it is failed, lost, quarantined, or idle while its range
// is served. Empty if nothing is known to be.
func (p *picture) ailing(node vtop.NodeName, r *fsm.Range) string {
	local := p.locals[node]
	if local == nil {
		return ""
	}
	name := p.state.RangeName(r.ID)
	for _, problem := range local.Problems {
		if problem.Subject == name && (problem.Kind == kindQuarantined || problem.Kind == kindFailed) {
			return fmt.Sprintf("%s: %s", problem.Kind, problem.Message)
		}
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
