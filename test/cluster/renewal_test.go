//go:build cluster

package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/tlsid"
)

// S3: the certificates of a running cluster end, on all ports. Two nodes were renewed in time, on disk alone: nothing of theirs shows but the new
// certificate in each handshake. The third was not, but for its port for clients: it has said for how long it had one, it is refused with that reason by whoever connects
// anew, and comes back when its files are replaced, without a restart.
func TestTLS_CertificatesEndWhileTheClusterRuns(t *testing.T) {
	c := harness.New(t, harness.Options{Nodes: 3, TLS: true, Flags: steady})
	ca := authorityOf(t, c)
	ends := map[*harness.Node]time.Time{}
	for _, n := range c.Nodes {
		base := filepath.Join(c.CertDir(), n.Name)
		n.Extra = []string{"--kafka-tls-cert", base + kafkaFiles + ".crt", "--kafka-tls-key", base + kafkaFiles + ".key"}
		renew(t, c, ca, n, time.Hour, kafkaFiles)
		n.Start()
	}
	c.WaitReady()
	createTopic(t, c, "ledger", 3, 3)
	client := kgo.DialTLSConfig(clientTLS(t, c))
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 3, InFlight: 64, Client: []kgo.Opt{client}})
	ledger.WaitMore(200, 30*time.Second)
	before, err := c.Leases("ledger")
	if err != nil {
		t.Fatal(err)
	}
	second := c.RaftLeader() // and not late, whom a node that starts has to reach to be registered
	first, late := c.Nodes[(second.Index+1)%3], c.Nodes[(second.Index+2)%3]
	for _, n := range c.Nodes {
		c.Eventually(30*time.Second, "the end of "+n.Name+"'s certificate in status", func() error {
			if time.Until(ends[n]) < 10*time.Second { // none yet, or the machine stood still
				ends[n] = renew(t, c, ca, n, 20*time.Second, nodeFiles, kafkaFiles)
			}
			return hasProblem(c, "certificate_ending", atPorts(n))
		})
		if at, err := n.Metric("vtop_tls_certificate_expiry_seconds"); err != nil || int64(at) != ends[n].Unix() {
			t.Errorf("%s says that its certificate ends at %.0f (%v), and it ends at %d", n.Name, at, err, ends[n].Unix())
		}
	}
	for _, n := range []*harness.Node{first, second} {
		ends[n] = renew(t, c, ca, n, time.Hour, nodeFiles, kafkaFiles)
	}
	renew(t, c, ca, late, time.Hour, kafkaFiles) // clients give a record up rather than take a certificate that has ended, and it may lead
	c.Eventually(30*time.Second, "no word of the certificates that were renewed", func() error {
		for _, n := range []*harness.Node{first, second} {
			if hasProblem(c, "certificate_ending", atPorts(n)) == nil {
				return fmt.Errorf("status still has it for %s", n.Name)
			}
		}
		return hasProblem(c, "certificate_ending", atPorts(late))
	})
	c.Eventually(60*time.Second, "the end of the first certificates", func() error {
		if err := hasProblem(c, "certificate_expired", atPorts(late)); err != nil {
			return hasProblem(c, "certificate_refused", late.Name) // who had to connect anew is not told by late
		}
		return nil
	})
	ledger.WaitMore(200, 30*time.Second)
	for _, n := range []*harness.Node{first, second} {
		shownEverywhere(t, c, n, ends[n])
	}
	sameEpochs(t, c, before)
	refusedAlone(t, c, ledger, first, late)
	renewed := time.Now()
	ends[late] = renew(t, c, ca, late, time.Hour, nodeFiles, kafkaFiles)
	c.Eventually(60*time.Second, "every node in its place again", func() error {
		s, err := first.Status()
		if err == nil && (s.Health != "ok" || s.Counts.NodesAlive != 3) {
			err = fmt.Errorf("status is %s with %+v", s.Health, s.Problems)
		}
		return err
	})
	t.Logf("well again %s after the renewal", time.Since(renewed).Round(time.Millisecond))
	shownEverywhere(t, c, late, ends[late])
	c.WaitInSync("ledger", 60*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second), client)
}

// refusedAlone starts first anew, which has to connect to late, whose certificate has ended: each says why it has nothing to do with the other, and the
// rest goes on.
func refusedAlone(t *testing.T, c *harness.Cluster, ledger *harness.Ledger, first, late *harness.Node) {
	t.Helper()
	pid := late.PID()
	first.Kill()
	first.Start()
	first.WaitReady()
	ledger.WaitMore(200, 60*time.Second)
	c.Eventually(60*time.Second, "first says who is refused", func() error {
		s, err := first.Status()
		if err != nil {
			return err
		}
		for _, p := range s.Problems {
			if p.Kind == "certificate_refused" && p.Subject == late.Name && strings.Contains(p.Message, "expired") && strings.Contains(p.Hint, "vtopctl cert issue") {
				t.Logf("%s is told of %s: %s (%s)", first.Name, late.Name, p.Message, p.Hint)
				return nil
			}
		}
		return fmt.Errorf("problems are %+v", s.Problems)
	})
	c.Eventually(60*time.Second, "both logs say why", func() error {
		if !strings.Contains(first.Log(), "certificate of vtop://node/"+late.Name+": x509: certificate has expired") {
			return fmt.Errorf("%s: nothing of an expired certificate of %s", first.Name, late.Name)
		}
		if !strings.Contains(late.Log(), "certificate has ended") {
			return fmt.Errorf("%s: nothing of its own certificate's end", late.Name)
		}
		return nil
	})
	if _, errOut, code := late.Ctl("status"); code != 3 || !strings.Contains(errOut, "expired") {
		t.Errorf("vtopctl status at %s: exit %d: %s", late.Name, code, errOut)
	}
	if late.PID() != pid || !late.Runs() {
		t.Errorf("%s has ended", late.Name)
	}
}

// sameEpochs holds that no lease has moved.
func sameEpochs(t *testing.T, c *harness.Cluster, before []harness.Lease) {
	t.Helper()
	after, err := c.Leases("ledger")
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		if len(after) != len(before) || after[i].Epoch != before[i].Epoch {
			t.Fatalf("a lease moved for a renewal: %+v, then %+v", before, after)
		}
	}
}

func atPorts(n *harness.Node) string { return "peer and admin ports on " + n.Name }

func authorityOf(t *testing.T, c *harness.Cluster) *tlsid.Authority {
	t.Helper()
	var pems [2][]byte
	for i, name := range []string{"ca.crt", "ca.key"} {
		b, err := os.ReadFile(filepath.Join(c.CertDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		pems[i] = b
	}
	ca, err := tlsid.ParseAuthority(pems[0], pems[1])
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// What the names of the files of a node's certificates end with: of the peer and admin ports, and of the port for clients.
const nodeFiles, kafkaFiles = "", "-kafka"

// renew replaces certificate and key of a node, one file after the other, and says when the new one ends.
func renew(t *testing.T, c *harness.Cluster, ca *tlsid.Authority, n *harness.Node, valid time.Duration, files ...string) time.Time {
	t.Helper()
	now := time.Now()
	cert, key, err := ca.Issue(tlsid.Request{Subject: tlsid.Subject{Role: tlsid.Node, Name: vtop.NodeName(n.Name)}, Hosts: []string{"127.0.0.1"}, Valid: valid}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range files {
		base := filepath.Join(c.CertDir(), n.Name+of)
		for name, b := range map[string][]byte{base + ".crt": cert, base + ".key": key} {
			if err := os.WriteFile(name+".new", b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(name+".new", name); err != nil {
				t.Fatal(err)
			}
		}
	}
	return now.Add(valid).Truncate(time.Second)
}

func clientTLS(t *testing.T, c *harness.Cluster) *tls.Config {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.CertDir(), "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b)
	return &tls.Config{RootCAs: roots}
}

// shownEverywhere shakes hands with each port of a node and looks at the certificate that it shows.
func shownEverywhere(t *testing.T, c *harness.Cluster, n *harness.Node, ends time.Time) {
	t.Helper()
	base := filepath.Join(c.CertDir(), "operator")
	id, err := tlsid.Load(tlsid.Files{Cert: base + ".crt", Key: base + ".key", CA: filepath.Join(c.CertDir(), "ca.crt")})
	if err != nil {
		t.Fatal(err)
	}
	for addr, cfg := range map[string]*tls.Config{n.Kafka: clientTLS(t, c), n.Admin: id.ClientConfig("", "http/1.1"), n.Peer: id.ClientConfig("", "http/1.1")} {
		conn, err := tls.Dial("tcp", addr, cfg)
		if err != nil {
			t.Fatalf("%s at %s: %v", n.Name, addr, err)
		}
		if got := conn.ConnectionState().PeerCertificates[0].NotAfter; !got.Equal(ends) {
			t.Errorf("%s at %s shows a certificate that ends at %s, want the renewed one of %s", n.Name, addr, got, ends.UTC())
		}
		_ = conn.Close() // looked at
	}
}
