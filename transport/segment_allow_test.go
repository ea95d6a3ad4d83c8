package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
	"github.com/vtop-log/vtop/transport/tlsid"
)

// repairCalls are all that the transfer allowlist stands before.
func repairCalls(ctx context.Context, from *node, to Target) map[string]error {
	errs := map[string]error{}
	_, errs["SealTail"] = from.client.SealTail(ctx, to, &peerpb.SealTailRequest{})
	_, errs["PinSegments"] = from.client.PinSegments(ctx, to, &peerpb.PinSegmentsRequest{})
	_, errs["ReleasePin"] = from.client.ReleasePin(ctx, to, &peerpb.ReleasePinRequest{})
	_, errs["AddLearner"] = from.client.AddLearner(ctx, to, &peerpb.AddLearnerRequest{})
	_, errs["ReportDamage"] = from.client.ReportDamage(ctx, to, &peerpb.ReportDamageRequest{})
	_, errs["FetchRange"] = from.client.FetchRange(ctx, to, segment, 0, make([]byte, 10))
	_, errs["FetchManifest"] = from.client.FetchManifest(ctx, to, segment, 100)
	return errs
}

func TestRepair_DefaultHandlerRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA)
		for range 2 {
			for call, err := range repairCalls(limit(t), a, b.target()) {
				if !errors.Is(err, ErrUnimplemented) {
					t.Errorf("%s: %v", call, err)
				}
			}
			b.SetHandler(Join(nil, nil, nil))
		}
	})
}

// TestRepair_AllowlistComesFirst: who is not on it learns nothing, not even whether its request makes sense.
func TestRepair_AllowlistComesFirst(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		var refusal atomic.Pointer[error]
		b := w.node("b", clusterA, func(o *Options) {
			o.AllowTransfer = func(c Caller) error {
				if c.Name == "a" {
					return nil
				}
				return *refusal.Load()
			}
		})
		s, _ := newSource(100)
		b.SetHandler(Join(nil, nil, nil).WithSegments(s))
		c := w.node("c", clusterA)
		for _, row := range []struct{ says, want error }{
			{errors.New("it is not registered"), ErrNotAllowed},
			{fmt.Errorf("%w: not caught up", vtop.ErrNotReady), vtop.ErrNotReady},
		} {
			refusal.Store(&row.says)
			b.transfers.Store(maxTransfers) // even an overload is nothing that it learns
			for call, err := range repairCalls(limit(t), c, b.target()) {
				if !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says.Error()) {
					t.Errorf("%s: %v, want %v", call, err, row.want)
				}
			}
		}
		if s.asked.Load() != 0 {
			t.Errorf("the handler was asked %d times", s.asked.Load())
		}
		b.transfers.Store(0)
		// Case: calls of other kinds are not the allowlist's business, and who is on it gets what it wants.
		if _, err := c.client.ReadIndex(limit(t), b.target(), &peerpb.ReadIndexRequest{}); !errors.Is(err, ErrUnimplemented) {
			t.Errorf("another call: %v", err)
		}
		buf := make([]byte, 100)
		_, err := w.node("a", clusterA).client.FetchRange(limit(t), b.target(), s.ref, 0, buf)
		must(t, err)
	})
}

func TestRepair_StrangersAreNotEvenAskedAbout(t *testing.T) {
	w, other := newWorld(t, true), newWorld(t, true)
	b := w.node("b", clusterA, func(o *Options) {
		o.AllowTransfer = func(c Caller) error {
			t.Errorf("the allowlist was asked about %+v", c)
			return nil
		}
	})
	s, _ := newSource(100)
	b.SetHandler(Join(nil, nil, nil).WithSegments(s))
	liar := w.node("a", clusterA)
	liar.self.Store(&Self{Name: "c", Cluster: clusterA})
	older := w.node("o", clusterA)
	older.self.Store(&Self{Name: "o", Cluster: clusterA, Generation: 1})
	for _, row := range []struct {
		name string
		from *node
		want error
	}{
		{"a stranger's certificate", other.node("a", clusterA), ErrUnreachable},
		{"no certificate", newWorld(t, false).node("a", clusterA), nil},
		{"a name that is not the certificate's", liar, ErrWrongNode},
		{"another cluster", w.node("x", clusterB), ErrWrongCluster},
		{"another generation", older, ErrWrongGeneration},
		{"no cluster yet", w.node("n", vtop.ClusterID{}), vtop.ErrNotReady},
	} {
		for call, err := range repairCalls(limit(t), row.from, b.target()) {
			if err == nil || row.want != nil && !errors.Is(err, row.want) {
				t.Errorf("%s, %s: %v, want %v", row.name, call, err, row.want)
			}
		}
	}
	// Case: an operator's certificate is for the admin port.
	operator := w.node("d", clusterA)
	operator.client.opt.TLS = w.identity(tlsid.Subject{Role: tlsid.Operator, Name: "d"})
	for call, err := range repairCalls(limit(t), operator, b.target()) {
		if err == nil {
			t.Errorf("operator, %s: answered", call)
		}
	}
	// Case: the address belongs to another node by now.
	for call, err := range repairCalls(limit(t), w.node("e", clusterA), Target{Name: "z", Addr: b.target().Addr}) {
		if !errors.Is(err, ErrWrongNode) {
			t.Errorf("recycled address, %s: %v", call, err)
		}
	}
	if s.asked.Load() != 0 {
		t.Errorf("the handler was asked %d times", s.asked.Load())
	}
}
