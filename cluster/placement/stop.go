package placement

import (
	"fmt"
	"strings"

	"github.com/vtop-log/vtop"
)

// Member is one voter of a range, or of the metadata, while another node is to be stopped.
type Member struct {
	Node vtop.NodeName
	// Fit: alive, whole, and caught up: it can carry the quorum from now on.
	Fit bool
	// Unknown: whether it is fit could not be found out. It is not Fit then.
	Unknown bool
	// Why says why it is not fit, or not known to be.
	Why string
}

// Quorum is one range, or the metadata, with all its voters.
type Quorum struct {
	// Subject is what people call it.
	Subject string
	Voters  []Member
}

// Obstacle is one thing that stands in the way.
type Obstacle struct {
	Subject string
	Message string
}

// SafeToStop says what would lose its majority while the node is stopped: for each quorum in which it votes, the other
// voters that are fit must be a majority of all of them. What could go either way is in unknown, and is no yes (I12);
// the node may be stopped if both are empty. The answer depends on the arguments alone.
func SafeToStop(node vtop.NodeName, quorums []Quorum) (reasons, unknown []Obstacle) {
	for _, q := range quorums {
		need := len(q.Voters)/2 + 1
		votes, fit, maybe := false, 0, 0
		var why []string
		for _, m := range q.Voters {
			switch {
			case m.Node == node:
				votes = true
				continue
			case m.Fit:
				fit++
				continue
			case m.Unknown:
				maybe++
			}
			why = append(why, fmt.Sprintf("%s: %s", m.Node, m.Why))
		}
		if !votes || fit >= need {
			continue
		}
		o := Obstacle{Subject: q.Subject, Message: fmt.Sprintf("needs %d of its %d voters, and without %s it would have %d", need, len(q.Voters), node, fit)}
		if len(why) > 0 {
			o.Message += " (" + strings.Join(why, "; ") + ")"
		}
		if fit+maybe >= need {
			unknown = append(unknown, o)
		} else {
			reasons = append(reasons, o)
		}
	}
	return reasons, unknown
}
