package fsm

import (
	"cmp"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// ClientQuota is what one client id may move on each node, in bytes a second; 0 is no limit. It is immutable once a State
// that holds it was published.
type ClientQuota struct {
	// Default is for all client ids that have no quota of their own. Client is empty then.
	Default bool
	// Client is the client id, as bytes: it need not be UTF-8.
	Client string
	// Produce and Fetch are 0 to MaxQuota, and not both 0.
	Produce, Fetch int64
}

// Limits of quotas (I13).
const (
	MaxClientQuotas = 10_000
	// MaxQuota is the highest rate, in bytes a second.
	MaxQuota = 1 << 50
)

// quotaLess puts the default first.
func quotaLess(a, b *ClientQuota) bool {
	if a.Default != b.Default {
		return a.Default
	}
	return cmp.Less(a.Client, b.Client)
}

// ClientQuotas walks all quotas: the default first, then by client id.
func (s *State) ClientQuotas() iter.Seq[*ClientQuota] { return all(s.quotas) }

// ClientQuota finds the quota that a client id has of its own.
func (s *State) ClientQuota(client string) (*ClientQuota, bool) {
	if s.quotas.Len() == 0 { // asked for every request of a client
		return nil, false
	}
	return s.quotas.Get(&ClientQuota{Client: client})
}

// DefaultClientQuota finds the quota of all client ids that have none of their own.
func (s *State) DefaultClientQuota() (*ClientQuota, bool) {
	if s.quotas.Len() == 0 {
		return nil, false
	}
	return s.quotas.Get(&ClientQuota{Default: true})
}

func (s *State) saveQuotas(out *recordWriter) {
	for q := range s.ClientQuotas() {
		out.record(recordQuota, &fsmpb.QuotaRecord{Default: q.Default, Client: []byte(q.Client), Produce: q.Produce, Fetch: q.Fetch})
	}
}

// quotaRecord is the part of record that is about quotas.
func (l *loader) quotaRecord(kind byte, r *reader) (m proto.Message, fill func()) {
	if kind != recordQuota {
		return nil, nil
	}
	p := new(fsmpb.QuotaRecord)
	return p, func() {
		q := &ClientQuota{Default: p.GetDefault(), Client: string(p.GetClient()), Produce: p.GetProduce(), Fetch: p.GetFetch()}
		if _, twice := l.s.quotas.Set(q); twice {
			r.fail("quota of client id %q twice", q.Client)
		}
	}
}

func (s *State) checkQuotas() error {
	if s.quotas.Len() > MaxClientQuotas {
		return fmt.Errorf("%d quotas", s.quotas.Len())
	}
	for q := range s.ClientQuotas() {
		fits := q.Produce >= 0 && q.Fetch >= 0 && q.Produce <= MaxQuota && q.Fetch <= MaxQuota && q.Produce+q.Fetch > 0
		if !fits || len(q.Client) > MaxName || q.Default && q.Client != "" {
			return fmt.Errorf("quota %+v", *q)
		}
	}
	return nil
}
