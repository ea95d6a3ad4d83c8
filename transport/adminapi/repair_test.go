package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/transport/tlsid"
)

// able is a fake that can do everything.
type able struct {
	fake
	verdicts []ScrubVerdict
	// hold, if set, is called before the scrub's end.
	hold func(ctx context.Context)
}

var (
	_ RepairHandler  = (*able)(nil)
	_ NodeHandler    = (*able)(nil)
	_ HealHandler    = (*able)(nil)
	_ RecoverHandler = (*able)(nil)
	_ ScrubHandler   = (*able)(nil)
)

var job = Repair{ID: 5, Range: "lines/2", Destination: "d", Sources: []string{"a", "b"}, Step: StepTransferring, Gap: Unknown, ETAMS: Unknown,
	DroppedSources: []DroppedSource{{"c", "chunk 3"}}, CreatedAt: time.Unix(1, 0).UTC(), UpdatedAt: time.Unix(2, 0).UTC()}

func (a *able) SubmitRepairs(_ context.Context, req RepairRequest) ([]Repair, error) {
	return []Repair{job}, a.note("submit %+v", req)
}

func (a *able) Repairs(_ context.Context, all bool) ([]Repair, error) {
	return nil, a.note("repairs %t", all)
}

func (a *able) Repair(_ context.Context, id uint64) (*Repair, error) {
	return &job, a.note("repair %d", id)
}

func (a *able) CancelRepair(_ context.Context, id uint64) (*Repair, error) {
	return &job, a.note("cancel %d", id)
}

func (a *able) Seal(_ context.Context, topic string, n int32, req SealRequest) (*SealResult, error) {
	return &SealResult{Range: topic, SealedEnd: 9}, a.note("seal %s/%d %+v", topic, n, req)
}

func (a *able) Pins(context.Context) ([]Pin, error) { return []Pin{{Node: "a", ID: 3}}, a.note("pins") }

func (a *able) DrainNode(_ context.Context, node string, req DrainRequest) (*DrainResult, error) {
	return &DrainResult{Node: node, State: "draining"}, a.note("drain %s %+v", node, req)
}

func (a *able) DrainStatus(_ context.Context, node string) (*DrainResult, error) {
	return &DrainResult{Node: node, Done: true}, a.note("drain of %s", node)
}

func (a *able) RemoveNode(_ context.Context, node string) (*RemoveResult, error) {
	return &RemoveResult{Node: node, Left: []Reason{{Subject: "lines/2"}}}, a.note("remove %s", node)
}

func (a *able) ReplaceNode(_ context.Context, node string, req ReplaceRequest) (*ReplaceResult, error) {
	return &ReplaceResult{Node: node, With: req.With}, a.note("replace %s %+v", node, req)
}

func (a *able) SafeToStop(_ context.Context, node string) (*SafeToStop, error) {
	return &SafeToStop{Node: node, Safe: true}, a.note("safe %s", node)
}

func (a *able) HealStatus(context.Context) (*HealStatus, error) {
	return &HealStatus{AfterMS: 600000}, a.note("heal")
}

func (a *able) PauseHeal(_ context.Context, why string) (*HealStatus, error) {
	return &HealStatus{Paused: true, Why: why}, a.note("pause %s", why)
}

func (a *able) ResumeHeal(context.Context) (*HealStatus, error) {
	return &HealStatus{}, a.note("resume")
}

func (a *able) RecoverRange(_ context.Context, topic string, n int32, req RecoverRequest) (*RecoverPlan, error) {
	return &RecoverPlan{Range: topic, Lost: []LostOffsets{{3, 7, true}}}, a.note("recover %s/%d %+v", topic, n, req)
}

func (a *able) Scrub(ctx context.Context, req ScrubRequest, found func(ScrubVerdict) error) error {
	if a.hold != nil {
		defer a.hold(ctx) // also where found has failed already
	}
	for _, v := range a.verdicts {
		if err := found(v); err != nil {
			return err
		}
	}
	return a.note("scrub %+v", req)
}

func (a *able) LocalScrub(_ context.Context, req ScrubRequest, found func(ScrubVerdict) error) error {
	return errors.Join(a.note("local scrub %+v", req), found(ScrubVerdict{Node: "me", Verdict: ScrubOK}))
}

func TestClient_ReachesEveryRepairCall(t *testing.T) {
	ca, err := tlsid.NewAuthority("c", time.Hour, time.Now())
	must(t, err)
	a, ctx := &able{}, context.Background()
	c := port(t, a, identity(t, ca, tlsid.Subject{Role: tlsid.Node, Name: "a"}), identity(t, ca, tlsid.Subject{Role: tlsid.Operator, Name: "ann"}))
	check := func(asked string, got, want any, err error) {
		t.Helper()
		must(t, err)
		if a.asked != asked || !reflect.DeepEqual(got, want) {
			t.Errorf("asked %q, want %q; got %+v, want %+v", a.asked, asked, got, want)
		}
	}
	req := RepairRequest{Topic: "a.b/c d", Range: 2, Destination: "d", Replaces: "x", SealTail: true, Sources: []string{"a"}, MaxRate: 50e6, DryRun: true}
	jobs, err := c.SubmitRepairs(ctx, req)
	check(fmt.Sprintf("submit %+v", req), jobs, []Repair{job}, err)
	jobs, err = c.Repairs(ctx, true)
	check("repairs true", jobs, []Repair{}, err)
	_, err = c.Repairs(ctx, false)
	check("repairs false", nil, nil, err)
	one, err := c.Repair(ctx, 1<<63)
	check("repair 9223372036854775808", one, &job, err)
	one, err = c.CancelRepair(ctx, 5)
	check("cancel 5", one, &job, err)
	seal, err := c.Seal(ctx, "x y", 1, SealRequest{Epoch: 4})
	check("seal x y/1 {Epoch:4}", seal, &SealResult{Range: "x y", SealedEnd: 9}, err)
	pins, err := c.Pins(ctx)
	check("pins", pins, []Pin{{Node: "a", ID: 3}}, err)
	drain, err := c.DrainNode(ctx, "n/1", DrainRequest{Cancel: true})
	check("drain n/1 {Cancel:true DryRun:false}", drain.State, "draining", err)
	drain, err = c.DrainStatus(ctx, "n")
	check("drain of n", drain.Done, true, err)
	removed, err := c.RemoveNode(ctx, "n")
	check("remove n", removed.Left, []Reason{{Subject: "lines/2"}}, err)
	replaced, err := c.ReplaceNode(ctx, "n", ReplaceRequest{With: "m"})
	check("replace n {With:m DryRun:false}", replaced.With, "m", err)
	safe, err := c.SafeToStop(ctx, "n")
	check("safe n", safe, &SafeToStop{Node: "n", Safe: true}, err)
	heal, err := c.HealStatus(ctx)
	check("heal", heal.AfterMS, int64(600000), err)
	heal, err = c.PauseHeal(ctx, "moving racks")
	check("pause moving racks", heal.Paused, true, err)
	heal, err = c.ResumeHeal(ctx)
	check("resume", heal.Paused, false, err)
	plan, err := c.RecoverRange(ctx, "t", 0, RecoverRequest{From: "b", AcceptDataLoss: true, ConfigVersion: 3})
	check("recover t/0 {From:b AcceptDataLoss:true DryRun:false ConfigVersion:3}", plan.Lost, []LostOffsets{{3, 7, true}}, err)
	sum, err := c.LocalScrub(ctx, ScrubRequest{Range: -1}, func(v ScrubVerdict) error { return a.note("found on %s", v.Node) })
	check("found on me", sum, &ScrubSummary{OK: 1}, err)
}

func TestServer_RefusesRepairsThatMakeNoSense(t *testing.T) {
	a := &able{}
	c := port(t, a, nil, nil)
	for path, bodies := range map[string][]string{
		"POST /v1/repairs": {`{}`, `{"topic":"t"}`, `{"destination":"d"}`, `{"destination":"d","topic":"t","all":true}`, `{"destination":"d","topic":"t","range":-1}`,
			`{"destination":"d","topic":"t","max_rate":-1}`, `{"destination":"d","topic":"t","replaces":"d"}`, `{"destination":"d","topic":"t","sources":["d"]}`,
			`{"destination":"d","topic":"t","sources":[""]}`, `[`},
		"GET /v1/repairs/0":                {""},
		"GET /v1/repairs/x":                {""},
		"POST /v1/repairs/-1/cancel":       {""},
		"POST /v1/ranges/t/x/seal":         {`{}`},
		"POST /v1/ranges/t/0/seal":         {`{"epoch":-1}`, ``},
		"POST /v1/nodes/n/replace":         {`{}`},
		"POST /v1/ranges/t/0/recover":      {`{"accept_data_loss":true}`, `{"from":"a"}`},
		"POST /v1/scrub":                   {``, `{"topic":"t","range":-2}`, `{"range":0}`, `{"topic":"t","range":0,"max_rate":-1}`},
		"POST /v1/local/scrub":             {`{"range":1}`},
		"POST /v1/ranges/t/99999999/seal2": {``},
	} {
		for _, body := range bodies {
			method, url, _ := strings.Cut(path, " ")
			req, err := http.NewRequest(method, c.base+url, strings.NewReader(body))
			must(t, err)
			resp, err := c.http.Do(req)
			must(t, err)
			said, err := io.ReadAll(resp.Body)
			must(t, errors.Join(err, resp.Body.Close()))
			if resp.StatusCode != 400 && resp.StatusCode != 404 || !strings.Contains(string(said), `"code"`) || a.asked != "" {
				t.Errorf("%s %s: %s %s, asked %q", path, body, resp.Status, said, a.asked)
			}
		}
	}
}

func TestServer_HandlerThatCannotRepair(t *testing.T) {
	c := port(t, &fake{}, nil, nil)
	_, repairs := c.Repairs(context.Background(), true)
	_, drain := c.DrainNode(context.Background(), "n", DrainRequest{})
	_, scrub := c.Scrub(context.Background(), ScrubRequest{Range: -1}, nil)
	for _, err := range []error{repairs, drain, scrub} {
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeNotFound {
			t.Errorf("%v", err)
		}
	}
}

func TestScrub_CountsAndTells(t *testing.T) {
	all := []ScrubVerdict{
		{Range: "t/0", Node: "a", Base: 0, Bytes: 5, Verdict: ScrubOK}, {Range: "t/0", Node: "b", Base: 0, Bytes: 5, Verdict: ScrubBad, Reason: "chunk 2"},
		{Range: "t/0", Node: "c", Verdict: ScrubUnknown, Reason: "did not answer"}, {Node: "d", Verdict: "new word"},
	}
	a := &able{verdicts: all}
	c := port(t, a, nil, nil)
	var got []ScrubVerdict
	collect := func(v ScrubVerdict) error { got = append(got, v); return nil }
	sum, err := c.Scrub(context.Background(), ScrubRequest{Topic: "t", Range: -1, MaxRate: 7}, collect)
	must(t, err)
	if !reflect.DeepEqual(got, all) || *sum != (ScrubSummary{1, 1, 2, 10}) || a.asked != "scrub {Topic:t Range:-1 MaxRate:7}" {
		t.Errorf("%+v, %+v, asked %q", got, sum, a.asked)
	}
	// Case: it fails in the middle; what was found before is told.
	a.err, got = fmt.Errorf("lead: %w", Errorf(CodeUnavailable, "disk").WithHint("wait")), nil
	_, err = c.Scrub(context.Background(), ScrubRequest{Topic: "t", Range: 0}, collect)
	var e *Error
	if !errors.As(err, &e) || *e != (Error{CodeUnavailable, "disk", "wait"}) || len(got) != len(all) {
		t.Errorf("%v after %d verdicts", err, len(got))
	}
	// Case: who asked has seen enough; the handler learns of it, or the port would not close.
	learned := make(chan struct{})
	a.err, a.hold = nil, func(ctx context.Context) { <-ctx.Done(); close(learned) }
	enough := errors.New("enough")
	if _, err = c.Scrub(context.Background(), ScrubRequest{Topic: "t", Range: 0}, func(ScrubVerdict) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	<-learned
	// Case: a reason without end.
	a.hold, a.verdicts, got = nil, []ScrubVerdict{{Verdict: ScrubBad, Reason: strings.Repeat("<", 1<<20)}}, nil
	sum, err = c.Scrub(context.Background(), ScrubRequest{Topic: "t", Range: 0}, collect)
	must(t, err)
	if sum.Bad != 1 || len(got) != 1 || len(got[0].Reason) != maxReason {
		t.Errorf("%+v", sum)
	}
}

func TestScrub_AnswersThatAreNone(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		want   Code
	}{
		"cut off":           {`{"verdict":{"verdict":"ok"}}` + "\n", CodeUnreachable},
		"nothing":           {"", CodeUnreachable},
		"progress alone":    {"{}\n{}\n", CodeUnreachable},
		"a line of 1 MiB":   {strings.Repeat("x", 1<<20), CodeUnreachable},
		"another language":  {"<html>\n", CodeInternal},
		"an error with end": {`{"error":{"code":"fenced","message":"m"}}` + "\n" + `{"summary":{}}`, CodeFenced},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, row.answer) }))
		c := NewClient(srv.Listener.Addr().String(), nil)
		_, err := c.Scrub(context.Background(), ScrubRequest{Range: -1}, func(ScrubVerdict) error { return nil })
		var e *Error
		if !errors.As(err, &e) || e.Code != row.want {
			t.Errorf("%s: %v, want %s", name, err, row.want)
		}
		c.Close()
		srv.Close()
	}
}

// TestJSON_NamesOfRepairStay pins the names that people's scripts read.
func TestJSON_NamesOfRepairStay(t *testing.T) {
	for _, row := range []struct {
		value any
		names string
	}{
		{Repair{}, "range destination sources sealed_end records_sealed segments bytes floor log_end gap voter outcome cause " +
			"id step bytes_done bytes_total bytes_per_second eta_ms last_error waiting created_at updated_at dropped_sources"},
		{SealResult{}, "range leader epoch sealed_end records_sealed segments"},
		{DrainResult{}, "node state leases_left replicas_left repairs stuck done"},
		{SafeToStop{}, "node safe reasons unknown"},
		{HealStatus{}, "paused after_ms running limit gone stuck repairs"},
		{ScrubVerdict{}, "range node replica_id base end bytes verdict"},
		{ScrubSummary{}, "ok bad unknown bytes"},
		{RecoverPlan{}, "range from replica_id config_version floor log_start keep_end lost voters warnings applied"},
	} {
		data, err := json.Marshal(row.value)
		must(t, err)
		var got map[string]any
		must(t, json.Unmarshal(data, &got))
		for name := range strings.FieldsSeq(row.names) {
			if _, ok := got[name]; !ok {
				t.Errorf("%T has no %q: %s", row.value, name, data)
			}
		}
		if _, ok := row.value.(Repair); ok && strings.Contains(string(data), "null") {
			t.Errorf("a list is null: %s", data)
		}
	}
}

func FuzzRepairServer(f *testing.F) {
	f.Add("POST", "/v1/repairs", `{"topic":"t","destination":"d"}`)
	f.Add("POST", "/v1/scrub", `{"range":-1}`)
	f.Add("POST", "/v1/ranges/t/0/recover", `{"from":"a","dry_run":true}`)
	f.Add("DELETE", "/v1/nodes/n", "")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		req, err := http.NewRequest(method, "http://h/", strings.NewReader(body))
		if err != nil {
			return
		}
		if req.URL, err = req.URL.Parse("/" + strings.TrimLeft(path, "/")); err != nil {
			return
		}
		rec := httptest.NewRecorder()
		NewServer(&able{verdicts: []ScrubVerdict{{Verdict: ScrubOK}}}, Hooks{}).ServeHTTP(rec, req)
		if rec.Code == http.StatusOK && rec.Body.Len() == 0 {
			t.Fatalf("%s %s: success without an answer", method, path)
		}
	})
}
