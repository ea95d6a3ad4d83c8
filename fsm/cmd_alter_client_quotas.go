package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// AlterClientQuotas changes what client ids may move, in bytes a second and on each node.
//
//	op            29, since level 1
//	proposed by   any node for a client
//	precondition  none
//	effect        per item: the rates that are set; a quota without any rate is forgotten
//	refused       per item: CodeLimit (MaxClientQuotas)
//	a repeat      changes nothing
type AlterClientQuotas struct {
	Items []QuotaChange
}

// QuotaChange is one item of AlterClientQuotas.
type QuotaChange struct {
	// Default is for all client ids that have no quota of their own; Client is empty then. The empty client id is one too.
	Default bool
	Client  string
	// SetProduce and SetFetch say which of the rates, 0 to MaxQuota, counts; 0 is no limit.
	SetProduce, SetFetch bool
	Produce, Fetch       int64
}

// Op implements Command.
func (c *AlterClientQuotas) Op() Op { return OpAlterClientQuotas }

// Check implements Command.
func (c *AlterClientQuotas) Check() error {
	var s shape
	s.items(len(c.Items))
	for _, e := range c.Items {
		s.atMost("length of client id", len(e.Client), MaxName)
		s.must(!e.Default || e.Client == "", "the default has the client id %q", e.Client)
		s.must(e.SetProduce || e.Produce == 0, "produce rate %d is not set", e.Produce)
		s.must(e.SetFetch || e.Fetch == 0, "fetch rate %d is not set", e.Fetch)
		for _, n := range []int64{e.Produce, e.Fetch} {
			s.must(n >= 0 && n <= MaxQuota, "rate %d: want 0 to %d", n, int64(MaxQuota))
		}
	}
	return s.err()
}

func (c *AlterClientQuotas) encode() proto.Message {
	return &fsmpb.AlterClientQuotas{Items: mapSlice(c.Items, func(e QuotaChange) *fsmpb.AlterClientQuotas_Item {
		return &fsmpb.AlterClientQuotas_Item{
			Default: e.Default, Client: []byte(e.Client), SetProduce: e.SetProduce, SetFetch: e.SetFetch, Produce: e.Produce, Fetch: e.Fetch,
		}
	})}
}

func decodeAlterClientQuotas(_ *reader, p *fsmpb.AlterClientQuotas) *AlterClientQuotas {
	return &AlterClientQuotas{Items: mapSlice(p.GetItems(), func(e *fsmpb.AlterClientQuotas_Item) QuotaChange {
		return QuotaChange{
			Default: e.GetDefault(), Client: string(e.GetClient()), SetProduce: e.GetSetProduce(), SetFetch: e.GetSetFetch(),
			Produce: e.GetProduce(), Fetch: e.GetFetch(),
		}
	})}
}

func (c *AlterClientQuotas) apply(t *tx) Outcome {
	return Outcome{Items: mapSlice(c.Items, func(e QuotaChange) Item { return Item{Refusal: e.apply(t)} })}
}

func (e QuotaChange) apply(t *tx) *Refusal {
	q := ClientQuota{Default: e.Default, Client: e.Client}
	old, had := t.s.quotas.Get(&q)
	if had {
		q = *old
	}
	if e.SetProduce {
		q.Produce = e.Produce
	}
	if e.SetFetch {
		q.Fetch = e.Fetch
	}
	switch {
	case q.Produce == 0 && q.Fetch == 0:
		t.s.quotas.Delete(&q)
		return nil
	case !had && t.s.quotas.Len() >= MaxClientQuotas:
		return refusef(CodeLimit, "%d client ids have a quota, at most %d: take some away, or set the default", t.s.quotas.Len(), MaxClientQuotas)
	}
	t.s.quotas.Set(&q)
	return nil
}
