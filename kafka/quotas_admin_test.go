package kafka

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/fsm"
)

func clientEntity(name *string) kadm.ClientQuotaEntity {
	return kadm.ClientQuotaEntity{{Type: "client-id", Name: name}}
}

func TestAlterClientQuotas(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	adm, ctx := admin(t, c)
	a, empty := "a", ""
	op := func(key string, value float64) kadm.AlterClientQuotaOp {
		return kadm.AlterClientQuotaOp{Key: key, Value: value}
	}
	alter := func(e kadm.ClientQuotaEntity, ops ...kadm.AlterClientQuotaOp) error {
		t.Helper()
		rs, err := adm.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: e, Ops: ops}})
		if err != nil || len(rs) != 1 {
			t.Fatalf("%+v %v", rs, err)
		}
		return rs[0].Err
	}
	for _, set := range []struct {
		name *string
		ops  []kadm.AlterClientQuotaOp
	}{
		{&a, []kadm.AlterClientQuotaOp{op("producer_byte_rate", 1000), op("consumer_byte_rate", 2000)}},
		{nil, []kadm.AlterClientQuotaOp{op("consumer_byte_rate", 3000)}},
		{&empty, []kadm.AlterClientQuotaOp{op("producer_byte_rate", 4000)}},
		{&a, []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Remove: true}}},
	} {
		if err := alter(clientEntity(set.name), set.ops...); err != nil {
			t.Errorf("%v: %v", set.ops, err)
		}
	}
	user := kadm.ClientQuotaEntity{{Type: "user", Name: &a}}
	for name, bad := range map[string]struct {
		e  kadm.ClientQuotaEntity
		op kadm.AlterClientQuotaOp
	}{
		"a user":                 {user, op("producer_byte_rate", 1)},
		"a user's client":        {append(user, clientEntity(&a)...), op("producer_byte_rate", 1)},
		"an address":             {kadm.ClientQuotaEntity{{Type: "ip", Name: &a}}, op("connection_creation_rate", 1)},
		"nothing":                {nil, op("producer_byte_rate", 1)},
		"a rate not measured":    {clientEntity(&a), op("request_percentage", 1)},
		"half a byte":            {clientEntity(&a), op("producer_byte_rate", 1.5)},
		"no byte":                {clientEntity(&a), op("producer_byte_rate", 0)},
		"more than there can be": {clientEntity(&a), op("producer_byte_rate", 1e30)},
	} {
		if err := alter(bad.e, bad.op); !is(err, kerr.InvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := alter(clientEntity(&a), op("consumer_byte_rate", 1), op("consumer_byte_rate", 2)); !is(err, kerr.InvalidRequest) {
		t.Errorf("a rate twice: %v", err)
	}
	if rs, err := adm.ValidateAlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: clientEntity(&a), Ops: []kadm.AlterClientQuotaOp{op("consumer_byte_rate", 9)}}}); err != nil || rs[0].Err != nil {
		t.Errorf("validated: %+v %v", rs, err)
	}
	var got []fsm.ClientQuota
	for q := range c.nodes[0].State().ClientQuotas() {
		got = append(got, *q)
	}
	if want := []fsm.ClientQuota{{Default: true, Fetch: 3000}, {Produce: 4000}, {Client: "a", Fetch: 2000}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDescribeClientQuotas(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	if _, err := c.nodes[0].AlterClientQuotas(t.Context(), []fsm.QuotaChange{
		{Default: true, SetFetch: true, Fetch: 1}, {Client: "a", SetProduce: true, Produce: 2, SetFetch: true, Fetch: 3}, {Client: "b", SetFetch: true, Fetch: 4},
	}); err != nil {
		t.Fatal(err)
	}
	adm, ctx := admin(t, c)
	name := func(s string) *string { return &s }
	exact := func(kind, match string) kadm.DescribeClientQuotaComponent {
		return kadm.DescribeClientQuotaComponent{Type: kind, MatchName: name(match), MatchType: kmsg.QuotasMatchTypeExact}
	}
	kind := func(kind string, how kmsg.QuotasMatchType) kadm.DescribeClientQuotaComponent {
		return kadm.DescribeClientQuotaComponent{Type: kind, MatchType: how}
	}
	all := "default[consumer_byte_rate=1] a[producer_byte_rate=2 consumer_byte_rate=3] b[consumer_byte_rate=4]"
	for what, tc := range map[string]struct {
		strict bool
		ask    []kadm.DescribeClientQuotaComponent
		want   string
	}{
		"everything":                 {false, nil, all},
		"nothing, strictly":          {true, nil, ""},
		"one":                        {true, []kadm.DescribeClientQuotaComponent{exact("client-id", "b")}, "b[consumer_byte_rate=4]"},
		"one that is not there":      {false, []kadm.DescribeClientQuotaComponent{exact("client-id", "c")}, ""},
		"the default":                {true, []kadm.DescribeClientQuotaComponent{kind("client-id", kmsg.QuotasMatchTypeDefault)}, "default[consumer_byte_rate=1]"},
		"every client id":            {true, []kadm.DescribeClientQuotaComponent{kind("client-id", kmsg.QuotasMatchTypeAny)}, all},
		"a user":                     {false, []kadm.DescribeClientQuotaComponent{exact("user", "a")}, ""},
		"a user and every client id": {false, []kadm.DescribeClientQuotaComponent{kind("client-id", kmsg.QuotasMatchTypeAny), kind("user", kmsg.QuotasMatchTypeAny)}, ""},
	} {
		rs, err := adm.DescribeClientQuotas(ctx, tc.strict, tc.ask)
		got := ""
		for _, q := range rs {
			who, values := "default", ""
			if n := q.Entity[0].Name; n != nil {
				who = *n
			}
			for _, v := range q.Values {
				values += fmt.Sprintf(" %s=%g", v.Key, v.Value)
			}
			got += fmt.Sprintf(" %s[%s]", who, values[1:])
		}
		if got != "" {
			got = got[1:]
		}
		if err != nil || got != tc.want {
			t.Errorf("%s: %q %v, want %q", what, got, err, tc.want)
		}
	}
	for what, ask := range map[string][]kadm.DescribeClientQuotaComponent{
		"a type twice":    {exact("client-id", "a"), exact("client-id", "b")},
		"exactly nothing": {kind("client-id", kmsg.QuotasMatchTypeExact)},
		"an odd match":    {kind("client-id", 9)},
	} {
		if _, err := adm.DescribeClientQuotas(ctx, true, ask); !is(err, kerr.InvalidRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := adm.DescribeClientQuotas(ctx, true, []kadm.DescribeClientQuotaComponent{exact("planet", "a")}); !is(err, kerr.UnsupportedVersion) {
		t.Errorf("an odd type: %v", err)
	}
}
