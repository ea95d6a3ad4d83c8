package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// AdmitPending gives a name to a data directory that claimed it.
//
//	op            3, since level 1
//	proposed by   the Raft leader, for an operator's `node replace` or after heal.after
//	precondition  the claim is pending
//	effect        the claim's identity takes the name and its broker id; the other claims go; every replica of
//	              the old owner is marked lost (I10), and leases resting on them end; a node that was gone is active
//	refused       CodeUnknownNode; CodeConflict if there is no such claim
//	a repeat      changes nothing and succeeds while that data directory owns the name
type AdmitPending struct {
	Name vtop.NodeName
	// Storage names the claim.
	Storage vtop.StorageID
	Reason  string
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Op implements Command.
func (c *AdmitPending) Op() Op { return OpAdmitPending }

// Check implements Command.
func (c *AdmitPending) Check() error {
	var s shape
	s.node(c.Name)
	s.uuid("storage id", c.Storage)
	s.text("reason", c.Reason)
	return s.err()
}

func (c *AdmitPending) encode() proto.Message {
	return &fsmpb.AdmitPending{Name: string(c.Name), Storage: putUUID(c.Storage), Reason: c.Reason, At: c.At}
}

func decodeAdmitPending(r *reader, p *fsmpb.AdmitPending) *AdmitPending {
	return &AdmitPending{Name: vtop.NodeName(p.GetName()), Storage: r.uuid(p.GetStorage()), Reason: p.GetReason(), At: p.GetAt()}
}

func (c *AdmitPending) apply(t *tx) Outcome {
	refusal := c.admit(t)
	return Outcome{Refusal: refusal, Registration: t.registration(c.Name)}
}

func (c *AdmitPending) admit(t *tx) *Refusal {
	old, known := t.s.Node(c.Name)
	if !known {
		return refusef(CodeUnknownNode, "admit: no node %q is registered", c.Name)
	}
	if old.Storage == c.Storage {
		return nil
	}
	for _, p := range old.Pending {
		if p.Storage != c.Storage {
			continue
		}
		if r := t.identityTaken(c.Name, p.Identity); r != nil {
			return r
		}
		t.replaceOwner(old, p.Identity, "replaced: "+c.Reason, c.At)
		return nil
	}
	return refusef(CodeConflict, "admit: data directory %s does not claim the name %q", c.Storage, c.Name)
}
