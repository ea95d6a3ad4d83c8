package tlsid

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func authority(t testing.TB) *Authority {
	t.Helper()
	a, err := NewAuthority("cluster", 24*time.Hour, time.Now())
	must(t, err)
	return a
}

// files is a set of files on disk; write replaces it as an operator's tool would.
func files(t testing.TB, a *Authority, s Subject, valid time.Duration) Files {
	t.Helper()
	dir := t.TempDir()
	f := Files{filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "ca")}
	write(t, f, a, s, valid)
	return f
}

func write(t testing.TB, f Files, a *Authority, s Subject, valid time.Duration) {
	t.Helper()
	cert, key, err := a.Issue(Request{Subject: s, Valid: valid, Hosts: []string{"localhost", "127.0.0.1"}}, time.Now())
	must(t, err)
	put(t, f.Cert, cert)
	put(t, f.Key, key)
	put(t, f.CA, a.CertPEM())
}

// put replaces a file and makes sure that its time differs: clocks of file systems are coarse.
func put(t testing.TB, name string, data []byte) {
	t.Helper()
	old, err := os.Stat(name)
	must(t, os.WriteFile(name, data, 0o600))
	if err == nil {
		later := old.ModTime().Add(time.Second)
		must(t, os.Chtimes(name, later, later))
	}
}

func identity(t testing.TB, a *Authority, s Subject) *Identity {
	t.Helper()
	id, err := Load(files(t, a, s, time.Hour))
	must(t, err)
	return id
}

// shake does a handshake over a pipe and returns both sides' views.
func shake(t testing.TB, server, client *tls.Config) (atServer, atClient tls.ConnectionState, err error) {
	t.Helper()
	a, b := net.Pipe()
	defer func() { _ = a.Close(); _ = b.Close() }() // pipes
	s, c := tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("ok"))
		}
		_ = a.Close() // the client must not wait
		done <- err
	}()
	// The client learns only by reading whether its own certificate was taken.
	_, cerr := c.Read(make([]byte, 2))
	_ = b.Close() // the server must not wait
	serr := <-done
	return s.ConnectionState(), c.ConnectionState(), errors.Join(serr, cerr)
}

func TestHandshake_BindsNames(t *testing.T) {
	a, other := authority(t), authority(t)
	b := identity(t, a, Subject{Node, "b"})
	nodes, all := []Role{Node}, []Role{Node, Operator}
	for _, row := range []struct {
		name   string
		client *Identity
		want   string
		accept []Role
		text   string // of the refusal; empty for success
	}{
		{"a node to the node it wants", identity(t, a, Subject{Node, "a"}), "b", nodes, ""},
		{"a node to any node", identity(t, a, Subject{Node, "a"}), "", nodes, ""},
		{"a node that wants another", identity(t, a, Subject{Node, "a"}), "c", nodes, "peer is vtop://node/b, wanted vtop://node/c"},
		{"an operator on the admin port", identity(t, a, Subject{Operator, "ann"}), "", all, ""},
		{"an operator on the peer port", identity(t, a, Subject{Operator, "ann"}), "", nodes, "vtop://operator/ann may not use this port"},
		{"another authority", identity(t, other, Subject{Node, "a"}), "b", nodes, "unknown authority"},
	} {
		t.Run(row.name, func(t *testing.T) {
			atServer, atClient, err := shake(t, b.ServerConfig(row.accept, "x"), row.client.ClientConfig(vtop.NodeName(row.want), "x"))
			if row.text != "" {
				if err == nil || !strings.Contains(err.Error(), row.text) {
					t.Fatalf("%v, want %q", err, row.text)
				}
				return
			}
			must(t, err)
			peer, err := SubjectOf(atServer)
			must(t, err)
			if peer != row.client.Subject() || atServer.Version != tls.VersionTLS13 || atClient.NegotiatedProtocol != "x" {
				t.Fatalf("%v, version %x, protocol %q", peer, atServer.Version, atClient.NegotiatedProtocol)
			}
		})
	}
}

func TestHandshake_RefusesOldTLSAndNoCertificate(t *testing.T) {
	a := authority(t)
	b, c := identity(t, a, Subject{Node, "b"}), identity(t, a, Subject{Node, "c"})
	old := c.ClientConfig("b")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, _, err := shake(t, b.ServerConfig([]Role{Node}), old); err == nil {
		t.Error("TLS 1.2 was taken")
	}
	bare := c.ClientConfig("b")
	bare.Certificates = nil
	if _, _, err := shake(t, b.ServerConfig([]Role{Node}), bare); err == nil {
		t.Error("no certificate was taken")
	}
}

// TestIdentity_RenewsWithoutRestart: certificates that are replaced on disk are used by the next handshake,
// and files that are wrong leave the old ones in use.
func TestIdentity_RenewsWithoutRestart(t *testing.T) {
	a := authority(t)
	f := files(t, a, Subject{Node, "b"}, time.Hour)
	id, err := Load(f)
	must(t, err)
	server := id.ServerConfig([]Role{Node}) // made before the change, as a listener's is
	client := identity(t, a, Subject{Node, "a"})
	first := id.NotAfter()

	// Case: a longer certificate.
	write(t, f, a, Subject{Node, "b"}, 2*time.Hour)
	_, atClient, err := shake(t, server, client.ClientConfig("b"))
	must(t, err)
	if got := atClient.PeerCertificates[0].NotAfter; !got.After(first) || !got.Equal(id.NotAfter()) {
		t.Errorf("still the certificate that ends at %v", got)
	}
	must(t, id.ReloadErr())

	// Case: only the certificate has been replaced so far, not its key.
	cert, key, err := a.Issue(Request{Subject: Subject{Node, "b"}, Valid: 3 * time.Hour}, time.Now())
	must(t, err)
	put(t, f.Cert, cert)
	second := id.NotAfter()
	if _, _, err := shake(t, server, client.ClientConfig("b")); err != nil {
		t.Errorf("half replaced: %v", err)
	}
	if err := id.ReloadErr(); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("half replaced, but %v", err)
	}
	put(t, f.Key, key)
	if !id.NotAfter().After(second) || id.ReloadErr() != nil {
		t.Errorf("the key came, still the certificate that ends at %v: %v", id.NotAfter(), id.ReloadErr())
	}

	// Case: a certificate of another name.
	write(t, f, a, Subject{Node, "z"}, time.Hour)
	if err := id.ReloadErr(); err == nil || !strings.Contains(err.Error(), "vtop://node/z") || id.Name() != "b" {
		t.Errorf("another name: %v, now %q", err, id.Name())
	}

	// Case: a file is gone, and comes back.
	must(t, os.Rename(f.CA, f.CA+".away"))
	if id.ReloadErr() == nil {
		t.Error("a file is gone and nothing says so")
	}
	must(t, os.Rename(f.CA+".away", f.CA))

	// Case: a new authority beside the old one.
	next := authority(t)
	write(t, f, next, Subject{Node, "b"}, time.Hour)
	put(t, f.CA, append(next.CertPEM(), a.CertPEM()...))
	if err := id.ReloadErr(); err != nil {
		t.Fatal(err)
	}
	newPeer := identity(t, next, Subject{Node, "n"})
	if _, _, err := shake(t, server, newPeer.ClientConfig("b")); err != nil {
		t.Errorf("peer of the new authority: %v", err)
	}
}

func TestLoad_SaysWhatIsWrong(t *testing.T) {
	a, other := authority(t), authority(t)
	good := func() Files { return files(t, a, Subject{Node, "b"}, time.Hour) }
	for _, row := range []struct {
		name, text string
		files      func() Files
	}{
		{"expired", "expired", func() Files { return files(t, a, Subject{Node, "b"}, -time.Minute) }},
		{"missing file", "nowhere", func() Files { f := good(); f.Key = "/nowhere"; return f }},
		{"another key", "private key does not match", func() Files {
			f := good()
			f.Key = good().Key
			return f
		}},
		{"another authority", "unknown authority", func() Files {
			f := good()
			put(t, f.CA, other.CertPEM())
			return f
		}},
		{"authority file without certificates", "no certificate of an authority", func() Files {
			f := good()
			put(t, f.CA, []byte("hello"))
			return f
		}},
		{"certificate without a name", "vtop:// names", func() Files {
			f := good()
			key, err := a.KeyPEM()
			must(t, err)
			put(t, f.Cert, a.CertPEM())
			put(t, f.Key, key)
			return f
		}},
		{"file far too large", "at most", func() Files {
			f := good()
			put(t, f.CA, make([]byte, maxFile+1))
			return f
		}},
	} {
		if _, err := Load(row.files()); err == nil || !strings.Contains(err.Error(), row.text) {
			t.Errorf("%s: %v, want %q", row.name, err, row.text)
		}
	}
}

func TestAuthority_RoundTripsAndLimits(t *testing.T) {
	a := authority(t)
	key, err := a.KeyPEM()
	must(t, err)
	again, err := ParseAuthority(a.CertPEM(), key)
	must(t, err)
	// Certificates of the authority read back are taken by those of the first.
	b, c := identity(t, a, Subject{Node, "b"}), identity(t, again, Subject{Node, "c"})
	if _, _, err := shake(t, b.ServerConfig([]Role{Node}), c.ClientConfig("b")); err != nil {
		t.Error(err)
	}
	otherKey, err := authority(t).KeyPEM()
	must(t, err)
	nodeCert, nodeKey, err := a.Issue(Request{Subject: Subject{Node, "b"}, Valid: 9999 * time.Hour}, time.Now())
	must(t, err)
	for name, pair := range map[string][2][]byte{
		"key of another authority": {a.CertPEM(), otherKey},
		"a node's certificate":     {nodeCert, nodeKey},
		"nothing":                  {nil, nil},
		"no key":                   {a.CertPEM(), a.CertPEM()},
	} {
		if _, err := ParseAuthority(pair[0], pair[1]); err == nil {
			t.Errorf("%s: taken for an authority", name)
		}
	}
	for _, name := range []string{"", "a/b", "a b", "ä", strings.Repeat("x", 64)} {
		if _, _, err := a.Issue(Request{Subject: Subject{Node, vtop.NodeName(name)}, Valid: time.Hour}, time.Now()); err == nil {
			t.Errorf("name %q was certified", name)
		}
	}
	if _, _, err := a.Issue(Request{Subject: Subject{"root", "b"}}, time.Now()); err == nil {
		t.Error("role root was certified")
	}
	f := files(t, a, Subject{Node, "b"}, 9999*time.Hour)
	id, err := Load(f)
	must(t, err)
	if id.NotAfter().After(a.NotAfter()) {
		t.Error("certificate outlives its authority")
	}
}

func TestCheckPlaintext(t *testing.T) {
	id := identity(t, authority(t), Subject{Node, "b"})
	for _, row := range []struct {
		addr    string
		id      *Identity
		allowed bool
		ok      bool
	}{
		{"127.0.0.1:9642", nil, false, true},
		{"[::1]:9642", nil, false, true},
		{"localhost:9642", nil, false, true},
		{":9642", nil, false, false},
		{"0.0.0.0:9642", nil, false, false},
		{"10.0.0.1:9642", nil, false, false},
		{"localhost.evil.example:9642", nil, false, false},
		{"no port", nil, false, false},
		{"0.0.0.0:9642", nil, true, true},
		{"0.0.0.0:9642", id, false, true},
	} {
		if err := CheckPlaintext("admin", row.addr, row.id, row.allowed); (err == nil) != row.ok {
			t.Errorf("%q, tls %v, allowed %v: %v", row.addr, row.id != nil, row.allowed, err)
		}
	}
}

// S3: the end that refuses a certificate says whose it was, and why.
func TestNamed_SaysWhoseCertificate(t *testing.T) {
	a := authority(t)
	b := identity(t, a, Subject{Node, "b"})
	cert, key, err := a.Issue(Request{Subject: Subject{Node, "a"}, Valid: -time.Minute}, time.Now())
	must(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	must(t, err)
	late := b.ClientConfig("b")
	late.Certificates = []tls.Certificate{pair}
	_, _, err = shake(t, b.ServerConfig([]Role{Node}), late)
	if named := Named(err); named == nil || !strings.HasPrefix(named.Error(), "certificate of vtop://node/a: x509: certificate has expired") {
		t.Errorf("%v", named)
	}
	if other := errors.New("other"); !errors.Is(Named(other), other) {
		t.Errorf("%v", Named(other))
	}
}
