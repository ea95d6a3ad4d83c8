package harness

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop/transport/tlsid"
	"github.com/vtop-log/vtop/transport/transporttest"
)

// Options say what cluster a test wants.
type Options struct {
	// Nodes that found the cluster.
	Nodes int
	// Flags go to every vtopd.
	Flags []string
	// NodeFlags go to one.
	NodeFlags func(i int) []string
	// Dir gives the data directory of a node; default a directory of the test's own.
	Dir func(i int) string
	// Wrap puts a command before vtopd, as strace or ip netns exec.
	Wrap func(n *Node) []string
	// Host gives the address that a node listens on; default loopback.
	Host func(i int) string
	// Env is added to the environment.
	Env []string
	// TLS makes certificates with vtopctl cert and runs peer and admin plane with them.
	TLS bool
}

// operator is the name of the certificate that tests use on the admin port.
const operator = "operator"

// Cluster is a set of vtopd processes that the test owns. What still runs at the end is killed; if the test
// failed, or VTOP_KEEP is set, the directories and logs are kept and named.
type Cluster struct {
	T     testing.TB
	Nodes []*Node
	opt   Options
	base  string
	certs string // directory of the certificates; empty without TLS
	http  *http.Client
}

// vtopd is built once for a test binary; VTOP_BIN names a directory that has one already.
var binaries = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("VTOP_BIN"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "vtop-bin-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"vtopd", "vtopctl"} {
		out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), "github.com/vtop-log/vtop/cmd/"+name).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

// Binary gives the path of vtopd or vtopctl.
func Binary(t testing.TB, name string) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// New makes a cluster and starts nothing.
func New(t testing.TB, opt Options) *Cluster {
	t.Helper()
	base, err := os.MkdirTemp("", fmt.Sprintf("vtop-test-%d-", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if opt.Dir == nil {
		opt.Dir = func(i int) string { return filepath.Join(base, "n"+strconv.Itoa(i+1)) }
	}
	if opt.Host == nil {
		opt.Host = func(int) string { return "127.0.0.1" }
	}
	c := &Cluster{T: t, opt: opt, base: base, http: &http.Client{Timeout: 5 * time.Second}}
	t.Cleanup(c.cleanup)
	if opt.TLS {
		c.makeCerts()
	}
	for range opt.Nodes {
		c.AddNode()
	}
	return c
}

// Start makes a cluster, starts it and waits until every node is ready.
func Start(t testing.TB, opt Options) *Cluster {
	t.Helper()
	c := New(t, opt)
	for _, n := range c.Nodes {
		n.Start()
	}
	c.WaitReady()
	return c
}

// AddNode makes one more node and does not start it.
func (c *Cluster) AddNode() *Node {
	i := len(c.Nodes)
	host := c.opt.Host(i)
	n := &Node{
		Name: "n" + strconv.Itoa(i+1), Index: i, Dir: c.opt.Dir(i), cluster: c,
		Kafka: addrOn(c.T, host), Peer: addrOn(c.T, host), Gossip: addrOn(c.T, host), Admin: addrOn(c.T, host),
		logPath: filepath.Join(c.base, "n"+strconv.Itoa(i+1)+".log"),
	}
	if c.certs != "" {
		c.issue(n.Name, "--host", host)
	}
	c.Nodes = append(c.Nodes, n)
	return n
}

// makeCerts makes an authority and the operator's certificate; each node gets its own when it is made.
func (c *Cluster) makeCerts() {
	c.T.Helper()
	c.certs = filepath.Join(c.base, "certs")
	c.cert("init", "--dir", c.certs)
	c.issue(operator, "--operator")
	base := filepath.Join(c.certs, operator)
	id, err := tlsid.Load(tlsid.Files{Cert: base + ".crt", Key: base + ".key", CA: filepath.Join(c.certs, "ca.crt")})
	if err != nil {
		c.T.Fatal(err)
	}
	c.http.Transport = &http.Transport{TLSClientConfig: id.ClientConfig("", "http/1.1")}
}

func (c *Cluster) issue(name string, args ...string) {
	c.T.Helper()
	c.cert(append([]string{"issue", name, "--dir", c.certs}, args...)...)
}

func (c *Cluster) cert(args ...string) {
	c.T.Helper()
	if out, err := exec.Command(Binary(c.T, "vtopctl"), append([]string{"cert"}, args...)...).CombinedOutput(); err != nil {
		c.T.Fatalf("vtopctl cert %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// CertDir is where the certificates of a cluster with TLS are.
func (c *Cluster) CertDir() string { return c.certs }

// Move gives the node other addresses from its next start on.
func (n *Node) Move() {
	t, host := n.cluster.T, n.cluster.opt.Host(n.Index)
	n.Kafka, n.Peer, n.Gossip, n.Admin = addrOn(t, host), addrOn(t, host), addrOn(t, host), addrOn(t, host)
}

func (c *Cluster) founders() string {
	var peers []string
	for i := range c.opt.Nodes {
		peers = append(peers, c.Nodes[i].Peer)
	}
	return strings.Join(peers, ",")
}

// Bootstrap gives the Kafka addresses of all nodes.
func (c *Cluster) Bootstrap() []string {
	var out []string
	for _, n := range c.Nodes {
		out = append(out, n.Kafka)
	}
	return out
}

// Node finds a node by name.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	c.T.Fatalf("no node %q", name)
	return nil
}

// Running gives the nodes whose process runs and isn't paused.
func (c *Cluster) Running() []*Node {
	var out []*Node
	for _, n := range c.Nodes {
		if n.Runs() && !n.paused.Load() {
			out = append(out, n)
		}
	}
	return out
}

// WaitReady waits until every running node answers ready.
func (c *Cluster) WaitReady() {
	c.T.Helper()
	for _, n := range c.Running() {
		n.WaitReady()
	}
}

// Eventually polls until check returns nil, and fails the test with its last error after limit, or two minutes if that is more.
func (c *Cluster) Eventually(limit time.Duration, what string, check func() error) {
	c.T.Helper()
	Eventually(c.T, limit, what, check)
}

// Eventually polls until check returns nil, and fails the test with its last error after limit, or two minutes if that is more.
func Eventually(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	limit = patient(limit)
	if err := Within(limit, check); err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, err)
	}
}

func (c *Cluster) cleanup() {
	for _, n := range c.Nodes {
		n.killQuietly()
	}
	if c.T.Failed() || os.Getenv("VTOP_KEEP") != "" {
		c.T.Logf("directories and logs of the cluster are kept under %s", c.base)
		for _, n := range c.Nodes {
			c.T.Logf("--- last lines of %s\n%s", n.logPath, n.LogTail(30))
		}
		return
	}
	if err := os.RemoveAll(c.base); err != nil {
		c.T.Logf("remove %s: %v", c.base, err)
	}
}

// addrOn is a free address of a host, which may belong to another network namespace.
func addrOn(t testing.TB, host string) string {
	return net.JoinHostPort(host, transporttest.FreePort(t))
}
