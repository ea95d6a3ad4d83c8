package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// testCA issues certificates.
type testCA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newTestCA(t testing.TB) *testCA {
	t.Helper()
	ca := &testCA{t: t}
	der, key := ca.make(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, time.Hour)
	ca.cert, _ = x509.ParseCertificate(der)
	ca.key = key
	return ca
}

func (ca *testCA) make(tmpl *x509.Certificate, valid time.Duration) ([]byte, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	ca.next++
	tmpl.SerialNumber, tmpl.NotBefore, tmpl.NotAfter = big.NewInt(ca.next), time.Now().Add(-time.Hour), time.Now().Add(valid)
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	return der, key
}

// issue makes a certificate and a key, as PEM.
func (ca *testCA) issue(name string, valid time.Duration) (cert, key []byte) {
	ca.t.Helper()
	der, priv := ca.make(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, valid)
	b, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		ca.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b})
}

func (ca *testCA) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// files writes a set of files for a port.
func (ca *testCA) files(name string) TLSFiles {
	ca.t.Helper()
	dir := ca.t.TempDir()
	f := TLSFiles{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	cert, key := ca.issue(name, time.Hour)
	write(ca.t, f.Cert, cert)
	write(ca.t, f.Key, key)
	write(ca.t, f.CA, ca.pem())
	return f
}

func write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// client is what a client trusts, with a certificate of its own if from is not nil.
func (ca *testCA) client(from *testCA) *tls.Config {
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AddCert(ca.cert)
	if from != nil {
		cert, key := from.issue("client", time.Hour)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			ca.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

func tlsCluster(t *testing.T, files TLSFiles, auth ClientAuth) (*fakeCluster, *TLS) {
	t.Helper()
	set, err := LoadTLS(files, auth)
	if err != nil {
		t.Fatal(err)
	}
	return newFakeCluster(t, 1, func(cfg *Config) { cfg.TLS = set }), set
}

// pings reports whether a client gets an answer.
func pings(t *testing.T, c *fakeCluster, cfg *tls.Config) bool {
	t.Helper()
	nc, err := tls.DialWithDialer(&net.Dialer{Timeout: hangs}, "tcp", c.nodes[0].addr, cfg)
	if err != nil {
		return false
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(hangs))
	if _, err := nc.Write(encodeRequest(kmsg.NewPtrApiVersionsRequest(), 1)); err != nil {
		return false
	}
	n, err := nc.Read(make([]byte, 4)) // under TLS 1.3 a refused client hears of it only here
	return err == nil && n > 0
}

func TestTLS_WhoMayConnect(t *testing.T) {
	ca, foreign := newTestCA(t), newTestCA(t)
	cases := []struct {
		auth                  ClientAuth
		bare, known, stranger bool
	}{
		{ClientAuthNone, true, true, true},
		{ClientAuthRequest, true, true, false},
		{ClientAuthRequire, false, true, false},
	}
	for _, tc := range cases {
		t.Run(string(tc.auth), func(t *testing.T) {
			files := ca.files("n1")
			if tc.auth == ClientAuthNone {
				files.CA = ""
			}
			c, _ := tlsCluster(t, files, tc.auth)
			for name, try := range map[string]struct {
				cfg  *tls.Config
				want bool
			}{"no certificate": {ca.client(nil), tc.bare}, "one of the authority": {ca.client(ca), tc.known}, "one of another": {ca.client(foreign), tc.stranger}} {
				if got := pings(t, c, try.cfg); got != try.want {
					t.Errorf("client with %s: %v, want %v", name, got, try.want)
				}
			}
			dial(t, c.nodes[0]).sendRaw(t, encodeRequest(kmsg.NewPtrApiVersionsRequest(), 1)).closed(t) // a plaintext client
		})
	}
}

func (c *rawConn) sendRaw(t testing.TB, b []byte) *rawConn {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTLS_ClientProducesAndConsumes(t *testing.T) {
	ca := newTestCA(t)
	c, _ := tlsCluster(t, ca.files("n1"), ClientAuthRequire)
	c.topic("t", 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.nodes[0].addr), kgo.DialTLSConfig(ca.client(ca)), kgo.ConsumeTopics("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx := testContext(t)
	big := strings.Repeat("x", 300<<10) // many TLS records
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(big)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := cl.PollFetches(ctx).Records(); len(got) != 1 || string(got[0].Value) != big {
		t.Fatalf("%d records", len(got))
	}
}

func TestTLS_FilesAreReadAgain(t *testing.T) {
	old, renewed := newTestCA(t), newTestCA(t)
	files := old.files("n1")
	c, set := tlsCluster(t, files, ClientAuthRequire)
	if !pings(t, c, old.client(old)) {
		t.Fatal("the first certificate")
	}
	// Case: half a change. What was in use stays, and the reason is told.
	cert, key := renewed.issue("n1", 2*time.Hour)
	write(t, files.Cert, cert)
	if !pings(t, c, old.client(old)) || set.ReloadErr() == nil || !strings.Contains(set.ReloadErr().Error(), "private key") {
		t.Fatalf("half a change: %v", set.ReloadErr())
	}
	// Case: the rest of it.
	write(t, files.Key, key)
	write(t, files.CA, renewed.pem())
	later := time.Now().Add(time.Minute) // a coarse file clock must not hide it
	for _, name := range []string{files.Cert, files.Key, files.CA} {
		if err := os.Chtimes(name, later, later); err != nil {
			t.Fatal(err)
		}
	}
	if !pings(t, c, renewed.client(renewed)) || set.ReloadErr() != nil {
		t.Fatalf("the whole change: %v", set.ReloadErr())
	}
	if pings(t, c, renewed.client(old)) {
		t.Error("a client of the old authority is still taken")
	}
	if left := time.Until(set.NotAfter()); left < 90*time.Minute {
		t.Errorf("ends in %s", left)
	}
}

func TestLoadTLS_Refusals(t *testing.T) {
	ca := newTestCA(t)
	good := ca.files("n1")
	expired, expiredKey := ca.issue("n1", -time.Minute)
	dir := t.TempDir()
	at := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		write(t, name, data)
		return name
	}
	cases := []struct {
		name  string
		files TLSFiles
		auth  ClientAuth
		want  string
	}{
		{"no such way to ask", good, "maybe", "want none, request or require"},
		{"authorities that nobody is held to", good, ClientAuthNone, "no client is asked"},
		{"nobody to hold clients to", TLSFiles{Cert: good.Cert, Key: good.Key}, ClientAuthRequire, "no file with the authorities"},
		{"a missing file", TLSFiles{Cert: good.Cert, Key: filepath.Join(dir, "none")}, ClientAuthNone, "no such file"},
		{"another key", TLSFiles{Cert: good.Cert, Key: at("k", expiredKey)}, ClientAuthNone, "private key"},
		{"expired", TLSFiles{Cert: at("c", expired), Key: at("k2", expiredKey)}, ClientAuthNone, "renew it"},
		{"no authority in the file", TLSFiles{Cert: good.Cert, Key: good.Key, CA: at("ca", []byte("x"))}, ClientAuthRequest, "no certificate of an authority"},
		{"too large", TLSFiles{Cert: at("big", make([]byte, maxTLSFile+1)), Key: good.Key}, ClientAuthNone, "at most"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := LoadTLS(tc.files, tc.auth); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
