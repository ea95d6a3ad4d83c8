//go:build cluster

package cluster

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/tlsid"
)

// A cluster with certificates from vtopctl cert and a gossip key: it works, kills included, and plaintext, a
// certificate of a stranger's authority, one of no authority and an operator on the peer plane are refused.
func TestTLS_MutualOnPeerAndAdminPlanes(t *testing.T) {
	key := "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	c := harness.Start(t, harness.Options{Nodes: 3, TLS: true, Flags: append([]string{"--gossip-key", key}, steady...)})
	createTopic(t, c, "ledger", 3, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 3, InFlight: 64})
	ledger.WaitMore(200, 30*time.Second)
	refuseStrangers(t, c)
	victim, _ := c.Holder("ledger", 0)
	victim.Kill()
	ledger.WaitMore(200, 30*time.Second)
	victim.Start()
	victim.WaitReady()
	c.WaitInSync("ledger", 60*time.Second)
	wrongName(t, c)
	wrongGossipKey(t, c)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

func refuseStrangers(t *testing.T, c *harness.Cluster) {
	t.Helper()
	n := c.Nodes[0]
	stranger := t.TempDir()
	for _, args := range [][]string{{"init", "--dir", stranger}, {"issue", "n2", "--dir", stranger}} {
		if out, err := exec.Command(harness.Binary(t, "vtopctl"), append([]string{"cert"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("vtopctl cert %v: %v: %s", args, err, out)
		}
	}
	load := func(dir, name, caDir string) *tls.Config {
		base := filepath.Join(dir, name)
		id, err := tlsid.Load(tlsid.Files{Cert: base + ".crt", Key: base + ".key", CA: filepath.Join(caDir, "ca.crt")})
		if err != nil {
			t.Fatal(err)
		}
		return id.ClientConfig("", "http/1.1")
	}
	foreign := load(stranger, "n2", stranger)
	foreign.VerifyConnection = nil // it believes whomever it reaches
	for name, cfg := range map[string]*tls.Config{
		"no certificate":                     {InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}},
		"a certificate of another authority": foreign,
	} {
		for plane, addr := range map[string]string{"admin": n.Admin, "peer": n.Peer} {
			if err := request(addr, cfg); err == nil {
				t.Errorf("%s is let in on the %s plane", name, plane)
			}
		}
	}
	if err := request(n.Peer, load(c.CertDir(), "operator", c.CertDir())); err == nil {
		t.Error("an operator's certificate is let in on the peer plane")
	}
	if err := request(n.Admin, load(c.CertDir(), "operator", c.CertDir())); err != nil {
		t.Errorf("the operator's certificate on the admin plane: %v", err)
	}
	for plane, addr := range map[string]string{"admin": n.Admin, "peer": n.Peer} {
		if answer, err := plaintext(addr); err == nil && strings.HasPrefix(answer, "HTTP/1.1 200") {
			t.Errorf("plaintext is answered on the %s plane: %q", plane, answer)
		}
	}
	out, err := exec.Command(harness.Binary(t, "vtopctl"), "--endpoint", n.Admin, "status").CombinedOutput()
	if err == nil {
		t.Errorf("a bare vtopctl is served by a cluster with TLS: %s", out)
	}
	t.Logf("a bare vtopctl is told: %s", strings.TrimSpace(string(out)))
}

// request asks for the health page; a refused certificate may show only when the first byte is read.
func request(addr string, cfg *tls.Config) error {
	client := http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get("https://" + addr + "/healthz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func plaintext(addr string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(conn, 4096))
	if len(b) > 0 {
		return string(b), nil
	}
	return "", errors.Join(err, io.EOF)
}

// wrongName starts a node under a name that its certificate doesn't bear: it must not start.
func wrongName(t *testing.T, c *harness.Cluster) {
	t.Helper()
	n := c.AddNode()
	base := filepath.Join(c.CertDir(), c.Nodes[0].Name)
	n.Extra = []string{"--tls-cert", base + ".crt", "--tls-key", base + ".key"}
	n.Start()
	if code := n.WaitEnd(20 * time.Second); code != 2 {
		t.Errorf("a certificate of another node ends vtopd with code %d, want 2", code)
	}
	t.Logf("a node with another's certificate says: %s", lastWord(n.Log()))
}

func wrongGossipKey(t *testing.T, c *harness.Cluster) {
	t.Helper()
	n := c.Nodes[len(c.Nodes)-1]
	n.Extra = []string{"--gossip-key", "short"}
	n.Start()
	if code := n.WaitEnd(20 * time.Second); code != 2 {
		t.Errorf("a gossip key that is none ends vtopd with code %d, want 2: %s", code, n.LogTail(2))
	}
}

func lastWord(log string) string {
	for _, line := range strings.Split(log, "\n") {
		if strings.Contains(line, "certificate") || strings.Contains(line, "name") && strings.Contains(line, "[ERROR]") {
			return line
		}
	}
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return lines[len(lines)-1]
}

// The files that vtopctl cert makes are not overwritten, and keys are for their owner's eyes alone.
func TestTLS_CertFilesAreGuarded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	ctl := harness.Binary(t, "vtopctl")
	for _, args := range [][]string{{"init", "--dir", dir}, {"issue", "n1", "--dir", dir, "--host", "127.0.0.1"}} {
		if out, err := exec.Command(ctl, append([]string{"cert"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		if out, err := exec.Command(ctl, append([]string{"cert"}, args...)...).CombinedOutput(); err == nil {
			t.Errorf("vtopctl cert %v overwrote what was there: %s", args, out)
		}
	}
	for _, key := range []string{"ca.key", "n1.key"} {
		info, err := os.Stat(filepath.Join(dir, key))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", key, info.Mode())
		}
	}
}
