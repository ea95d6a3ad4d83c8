package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/transport/tlsid"
	"github.com/vtop-log/vtop/transport/transporttest"
)

func TestMain(m *testing.M) { transporttest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fake answers with canned values and notes what it was asked.
type fake struct {
	asked string
	err   error
}

func (f *fake) note(format string, args ...any) error {
	f.asked = fmt.Sprintf(format, args...)
	return f.err
}

var lease = Lease{Topic: "lines", Range: 2, Holder: "a", Epoch: 7, State: "serving", Floor: 1, HighWatermark: 2, LogEnd: 3,
	Replicas: []Replica{{Node: "a", Role: "voter", State: "leading", LogEnd: 3, ReplicaID: 9, DurableEnd: 3}}}

func (f *fake) Status(context.Context) (*Status, error) {
	return &Status{Node: "a", Health: "ok", StalledDisks: []StalledDisk{{Node: "b", StalledMS: 5000}}}, f.note("status")
}

func (f *fake) Nodes(context.Context) ([]Node, error) {
	return []Node{{Name: "a", ID: 1, Alive: true}}, f.note("nodes")
}
func (f *fake) Topics(context.Context) ([]Topic, error) { return nil, f.note("topics") }

func (f *fake) Topic(_ context.Context, name string) (*TopicDetail, error) {
	return &TopicDetail{Topic: Topic{Name: name}, Leases: []Lease{lease}}, f.note("topic %s", name)
}

func (f *fake) CreateTopic(_ context.Context, req CreateTopic) (*TopicDetail, error) {
	return &TopicDetail{Topic: Topic{Name: req.Name, Ranges: req.Ranges, Config: req.Config}}, f.note("create %s %d %d %v", req.Name, req.Ranges, req.Replicas, req.Config)
}

func (f *fake) DeleteTopic(_ context.Context, name string) error { return f.note("delete %s", name) }

func (f *fake) Leases(_ context.Context, topic string) ([]Lease, error) {
	return []Lease{lease}, f.note("leases %s", topic)
}

func (f *fake) Lease(_ context.Context, topic string, n int32) (*LeaseDetail, error) {
	return &LeaseDetail{Lease: lease, Why: "holder died", TimeLeftMS: Unknown, Since: time.Unix(1, 0).UTC()}, f.note("lease %s/%d", topic, n)
}

func (f *fake) TransferLease(_ context.Context, topic string, n int32, to string) (*LeaseDetail, error) {
	return &LeaseDetail{Lease: lease}, f.note("transfer %s/%d to %s", topic, n, to)
}

func (f *fake) Segments(_ context.Context, topic string, n int32, node string) ([]Segment, error) {
	return []Segment{{Node: node, Base: 0, End: 9}}, f.note("segments %s/%d on %q", topic, n, node)
}

// port opens an admin port and a client on it.
func port(t *testing.T, h Handler, server, client *tlsid.Identity) *Client {
	t.Helper()
	hook := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	l, err := Listen("127.0.0.1:0", server, NewServer(h, Hooks{Healthz: hook("alive"), Readyz: hook("ready"), Metrics: hook("metrics")}), log.New(io.Discard, "", 0))
	must(t, err)
	c := NewClient(l.Addr().String(), client)
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		must(t, l.Close(ctx))
	})
	return c
}

// identity trusts its own authority and those of also.
func identity(t *testing.T, a *tlsid.Authority, s tlsid.Subject, also ...*tlsid.Authority) *tlsid.Identity {
	t.Helper()
	cert, key, err := a.Issue(tlsid.Request{Subject: s, Valid: time.Hour}, time.Now())
	must(t, err)
	dir := t.TempDir()
	f := tlsid.Files{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
	must(t, os.WriteFile(f.Cert, cert, 0o600))
	must(t, os.WriteFile(f.Key, key, 0o600))
	roots := a.CertPEM()
	for _, other := range also {
		roots = append(roots, other.CertPEM()...)
	}
	must(t, os.WriteFile(f.CA, roots, 0o600))
	id, err := tlsid.Load(f)
	must(t, err)
	return id
}

func TestClient_ReachesEveryCall(t *testing.T) {
	ca, err := tlsid.NewAuthority("c", time.Hour, time.Now())
	must(t, err)
	for name, ids := range map[string][2]*tlsid.Identity{
		"plaintext": {},
		"operator":  {identity(t, ca, tlsid.Subject{Role: tlsid.Node, Name: "a"}), identity(t, ca, tlsid.Subject{Role: tlsid.Operator, Name: "ann"})},
	} {
		t.Run(name, func(t *testing.T) { everyCall(t, ids[0], ids[1]) })
	}
}

func everyCall(t *testing.T, server, client *tlsid.Identity) {
	f := &fake{}
	c, ctx := port(t, f, server, client), context.Background()
	check := func(asked string, got, want any, err error) {
		t.Helper()
		must(t, err)
		if f.asked != asked || !reflect.DeepEqual(got, want) {
			t.Errorf("asked %q, want %q; got %+v, want %+v", f.asked, asked, got, want)
		}
	}
	status, err := c.Status(ctx)
	check("status", status.StalledDisks, []StalledDisk{{Node: "b", StalledMS: 5000}}, err)
	nodes, err := c.Nodes(ctx)
	check("nodes", nodes, []Node{{Name: "a", ID: 1, Alive: true}}, err)
	topics, err := c.Topics(ctx)
	check("topics", topics, []Topic{}, err)
	topic, err := c.Topic(ctx, "a.b/c d")
	check("topic a.b/c d", topic.Leases, []Lease{lease}, err)
	topic, err = c.CreateTopic(ctx, CreateTopic{Name: "x", Ranges: 3, Replicas: 2, Config: map[string]string{"k": "v"}})
	check("create x 3 2 map[k:v]", topic.Config, map[string]string{"k": "v"}, err)
	check("delete x y", nil, nil, c.DeleteTopic(ctx, "x y"))
	leases, err := c.Leases(ctx, "")
	check("leases ", leases, []Lease{lease}, err)
	leases, err = c.Leases(ctx, "a&b")
	check("leases a&b", leases, []Lease{lease}, err)
	detail, err := c.Lease(ctx, "lines", 2)
	check("lease lines/2", detail, &LeaseDetail{Lease: lease, Why: "holder died", TimeLeftMS: -1, Since: time.Unix(1, 0).UTC()}, err)
	detail, err = c.TransferLease(ctx, "lines", 2, "b")
	check("transfer lines/2 to b", detail.Lease, lease, err)
	segments, err := c.Segments(ctx, "lines", 2, "c")
	check(`segments lines/2 on "c"`, segments, []Segment{{Node: "c", End: 9}}, err)
	segments, err = c.Segments(ctx, "lines", 2, "")
	check(`segments lines/2 on ""`, segments, []Segment{{End: 9}}, err)
	for path, want := range map[string]string{"/healthz": "alive", "/readyz": "ready", "/metrics": "metrics"} {
		resp, err := c.http.Get(c.base + path)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, errors.Join(err, resp.Body.Close()))
		if string(body) != want {
			t.Errorf("%s: %q", path, body)
		}
	}
}

// TestJSON_NamesStay pins the names that people's scripts read.
func TestJSON_NamesStay(t *testing.T) {
	for _, row := range []struct {
		value any
		names string
	}{
		{Lease{}, "topic range holder epoch state floor high_watermark log_end log_start replicas"},
		{Replica{}, "node role state log_end lag"},
		{Node{}, "name id state alive incarnation kafka_addr peer_addr raft_role leases"},
		{LeaseDetail{}, "topic range holder epoch since why time_left_ms floor high_watermark log_end log_start replicas epochs changes"},
		{Status{}, "cluster_id node health nodes pending_nodes lost_replicas stalled_disks raft_leader"},
		{Error{Hint: "x"}, "code message hint"},
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
	}
}

func TestClient_ErrorsKeepCodeAndHint(t *testing.T) {
	f := &fake{}
	c := port(t, f, nil, nil)
	for code, status := range statusOf {
		f.err = fmt.Errorf("outside: %w", Errorf(code, "wanted 1, found 2").WithHint("try 3"))
		_, err := c.Lease(context.Background(), "t", 0)
		var e *Error
		if !errors.As(err, &e) || *e != (Error{code, "wanted 1, found 2", "try 3"}) {
			t.Errorf("%s (%d) came back as %v", code, status, err)
		}
	}
	f.err = errors.New("odd")
	var e *Error
	if _, err := c.Nodes(context.Background()); !errors.As(err, &e) || e.Code != CodeInternal || e.Message != "odd" {
		t.Errorf("odd error came back as %v", err)
	}
	f.err = context.DeadlineExceeded
	if _, err := c.Nodes(context.Background()); !errors.As(err, &e) || e.Code != CodeTimeout {
		t.Errorf("timeout came back as %v", err)
	}
}

func TestServer_RefusesWhatMakesNoSense(t *testing.T) {
	f := &fake{}
	c := port(t, f, nil, nil)
	for _, row := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/v1/leases/t/x", "", 400},
		{"GET", "/v1/leases/t/-1", "", 400},
		{"GET", "/v1/leases/t/99999999999", "", 400},
		{"GET", "/v1/segments/t/x", "", 400},
		{"POST", "/v1/leases/t/1/transfer", "{}", 400},
		{"POST", "/v1/leases/t/1/transfer", "{", 400},
		{"POST", "/v1/topics", "[]", 400},
		{"POST", "/v1/topics", `{"name":"` + strings.Repeat("x", maxBody) + `"}`, 400},
		{"GET", "/v1/nothing", "", 404},
		{"PUT", "/v1/status", "", 404},
		{"GET", "/other", "", 404},
	} {
		req, err := http.NewRequest(row.method, c.base+row.path, strings.NewReader(row.body))
		must(t, err)
		resp, err := c.http.Do(req)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, errors.Join(err, resp.Body.Close()))
		if resp.StatusCode != row.status {
			t.Errorf("%s %s: %s %s", row.method, row.path, resp.Status, body)
		}
		if strings.HasPrefix(row.path, "/v1/") && (!json.Valid(body) || !strings.Contains(string(body), `"code"`)) {
			t.Errorf("%s %s: body %q", row.method, row.path, body)
		}
		if f.asked != "" {
			t.Errorf("%s %s reached the handler as %q", row.method, row.path, f.asked)
		}
	}
}

func TestClient_SaysThatNobodyIsThere(t *testing.T) {
	addr := transporttest.RefusingAddr(t)
	c := NewClient(addr, nil)
	defer c.Close()
	var e *Error
	if _, err := c.Status(context.Background()); !errors.As(err, &e) || e.Code != CodeUnreachable || !strings.Contains(e.Message, addr) || e.Hint == "" {
		t.Errorf("%v", err)
	}
}

func TestCheckExposure(t *testing.T) {
	if err := CheckExposure("0.0.0.0:9642", nil, false); err == nil || !strings.Contains(err.Error(), "admin") {
		t.Errorf("%v", err)
	}
	must(t, CheckExposure("127.0.0.1:9642", nil, false))
}

func FuzzServer(f *testing.F) {
	f.Add("POST", "/v1/leases/t/1/transfer", `{"to":"b"}`)
	f.Add("GET", "/v1/segments/t/1?node=x", "")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		req, err := http.NewRequest(method, "http://h/", strings.NewReader(body))
		if err != nil {
			return
		}
		if req.URL, err = req.URL.Parse("/" + strings.TrimLeft(path, "/")); err != nil {
			return
		}
		NewServer(&fake{}, Hooks{}).ServeHTTP(discard{http.Header{}}, req)
	})
}

type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
