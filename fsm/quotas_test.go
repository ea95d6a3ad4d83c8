package fsm

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/vtop-log/vtop"
)

func quotasOf(s *State) (out []ClientQuota) {
	for q := range s.ClientQuotas() {
		out = append(out, *q)
	}
	return out
}

func TestAlterClientQuotas_EachRateByItself(t *testing.T) {
	w := newWorld(t)
	change := func(items ...QuotaChange) { w.t.Helper(); w.ok(&AlterClientQuotas{Items: items}) }
	change(QuotaChange{Client: "a", SetProduce: true, Produce: 10}, QuotaChange{Default: true, SetFetch: true, Fetch: 20}, QuotaChange{SetFetch: true, Fetch: 5})
	change(QuotaChange{Client: "a", SetFetch: true, Fetch: 30})
	want := []ClientQuota{{Default: true, Fetch: 20}, {Fetch: 5}, {Client: "a", Produce: 10, Fetch: 30}}
	if got := quotasOf(w.s); !slices.Equal(got, want) {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
	if q, ok := w.s.ClientQuota("a"); !ok || q.Produce != 10 {
		t.Errorf("a: %+v", q)
	}
	if _, ok := w.s.ClientQuota("b"); ok {
		t.Error("b has a quota of its own")
	}
	if q, ok := w.s.DefaultClientQuota(); !ok || q.Fetch != 20 {
		t.Errorf("default: %+v", q)
	}
	// Case: the last rate that is taken away takes the quota along.
	change(QuotaChange{Client: "a", SetProduce: true}, QuotaChange{Default: true, SetFetch: true}, QuotaChange{Client: "never"})
	if got := quotasOf(w.s); !slices.Equal(got, []ClientQuota{{Fetch: 5}, {Client: "a", Fetch: 30}}) {
		t.Errorf("got %+v", got)
	}
}

func TestAlterClientQuotas_Limits(t *testing.T) {
	for name, e := range map[string]QuotaChange{
		"a rate below 0":          {Client: "a", SetFetch: true, Fetch: -1},
		"a rate that is too high": {Client: "a", SetProduce: true, Produce: MaxQuota + 1},
		"a rate that is not set":  {Client: "a", Produce: 1},
		"the default with a name": {Default: true, Client: "a", SetFetch: true, Fetch: 1},
	} {
		if err := (&AlterClientQuotas{Items: []QuotaChange{e}}).Check(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	w := newWorld(t)
	var items []QuotaChange
	for i := range MaxClientQuotas {
		items = append(items, QuotaChange{Client: fmt.Sprint(i), SetFetch: true, Fetch: 1})
	}
	w.ok(&AlterClientQuotas{Items: items})
	w.refused(&AlterClientQuotas{Items: []QuotaChange{{Client: "more", SetFetch: true, Fetch: 1}}}, CodeLimit)
	w.ok(&AlterClientQuotas{Items: []QuotaChange{{Client: "0", SetFetch: true, Fetch: 2}}})
}

// Snapshots of running clusters are read by later builds.
func TestState_GoldenQuotas(t *testing.T) {
	w := newWorld(t)
	w.ok(&AlterClientQuotas{Items: everyQuota()})
	saved := save(t, w.s)
	compareGolden(t, "testdata/snapshot_quotas.golden", []byte(hex.EncodeToString(saved)+"\n"))
	back, err := Load(bytes.NewReader(saved))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := contents(w.s), contents(back); !reflect.DeepEqual(a, b) || len(quotasOf(back)) != 2 {
		t.Errorf("saved  %+v\nloaded %+v", a, b)
	}
}

// Case by case: what a reassignment may wish for, and that new voters keep to it.
func TestSetPreferred(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(10, 10)
	wish := func(nodes ...vtop.NodeName) *SetPreferred {
		return &SetPreferred{Items: []Preference{{r0, nodes}}}
	}
	w.refused(wish("n4", "n2", "n3"), CodeConflict) // nothing is there, nothing on its way
	w.refused(wish("n9"), CodeUnknownNode)
	w.refused(&SetPreferred{Items: []Preference{{vtop.Range{Topic: uuid(99)}, []vtop.NodeName{"n1"}}}}, CodeUnknownRange)
	for _, bad := range []*SetPreferred{wish(), wish("n1", "n1"), {}} {
		if bad.Check() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
	config := w.rng(r0).ConfigVersion
	w.ok(wish("n3", "n1", "n2"))
	if r := w.rng(r0); !slices.Equal(r.Preferred, []vtop.NodeName{"n3", "n1", "n2"}) || r.ConfigVersion != config || !r.Settled() {
		t.Fatalf("range %+v", r)
	}
	w.ok(&SubmitRepairs{Items: []RepairRequest{{Range: r0, Destination: "n4", Replace: "n1", Origin: OriginOperator}}})
	w.ok(wish("n2", "n4", "n3"))
	id := w.ok(w.changeOf(AddLearner, "n4", 0)).ReplicaID
	w.report(10, 10)
	w.ok(w.changeOf(PromoteLearner, "", id))
	if got := w.rng(r0).Preferred; !slices.Equal(got, []vtop.NodeName{"n2", "n4", "n3"}) {
		t.Errorf("preferred %v: a new voter that is wanted moves nobody", got)
	}
	w.ok(wish("n2", "n4")) // fewer: the leader's business from here on
}
