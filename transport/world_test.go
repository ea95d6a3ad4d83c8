package transport

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/tlsid"
	"github.com/vtop-log/vtop/transport/transporttest"
)

func TestMain(m *testing.M) { transporttest.Main(m) }

var (
	clusterA = vtop.ClusterID{0xaa, 1}
	clusterB = vtop.ClusterID{0xbb, 2}
)

// world makes nodes that trust one authority, or none in plaintext.
type world struct {
	t  testing.TB
	ca *tlsid.Authority
}

func newWorld(t testing.TB, secure bool) *world {
	t.Helper()
	w := &world{t: t}
	if secure {
		ca, err := tlsid.NewAuthority("test", time.Hour, time.Now())
		must(t, err)
		w.ca = ca
	}
	return w
}

// onBoth runs a contract in plaintext and under TLS.
func onBoth(t *testing.T, contract func(t *testing.T, w *world)) {
	for name, secure := range map[string]bool{"plaintext": false, "tls": true} {
		t.Run(name, func(t *testing.T) { contract(t, newWorld(t, secure)) })
	}
}

// node is one end: a port, and what it calls others with.
type node struct {
	*Mux
	client *Client
	dialer *Dialer
	self   atomic.Pointer[Self]
	opt    Options
}

func (n *node) target() Target { return Target{Name: n.self.Load().Name, Addr: n.Addr().String()} }

func (w *world) identity(s tlsid.Subject) *tlsid.Identity {
	w.t.Helper()
	if w.ca == nil {
		return nil
	}
	id, err := tlsid.Load(writeIdentity(w.t, w.ca, s))
	must(w.t, err)
	return id
}

func writeIdentity(t testing.TB, ca *tlsid.Authority, s tlsid.Subject) tlsid.Files {
	t.Helper()
	cert, key, err := ca.Issue(tlsid.Request{Subject: s, Valid: time.Hour}, time.Now())
	must(t, err)
	dir := t.TempDir()
	f := tlsid.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	must(t, os.WriteFile(f.Cert, cert, 0o600))
	must(t, os.WriteFile(f.Key, key, 0o600))
	must(t, os.WriteFile(f.CA, ca.CertPEM(), 0o600))
	return f
}

func (w *world) node(name vtop.NodeName, cluster vtop.ClusterID, tune ...func(*Options)) *node {
	w.t.Helper()
	n := new(node)
	n.self.Store(&Self{Name: name, Cluster: cluster, Storage: vtop.StorageID{1}, Incarnation: 7, ServerID: "srv-" + string(name)})
	n.opt = Options{
		Self: func() Self { return *n.self.Load() },
		TLS:  w.identity(tlsid.Subject{Role: tlsid.Node, Name: name}),
		Log:  hclog.NewNullLogger(),
	}
	for _, f := range tune {
		f(&n.opt)
	}
	var err error
	n.Mux, err = Listen("127.0.0.1:0", n.opt)
	must(w.t, err)
	n.client, err = NewClient(n.opt)
	must(w.t, err)
	n.dialer, err = NewDialer(n.opt)
	must(w.t, err)
	w.t.Cleanup(func() {
		must(w.t, n.client.Close())
		must(w.t, n.dialer.Close())
		must(w.t, n.Close())
	})
	return n
}

// serve registers what a stream test needs on the answering side.
func (n *node) serve(p Purpose, f func(ctx context.Context, s *Stream)) { n.HandleStream(p, f) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// limit is a generous bound for what must not hang.
func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
