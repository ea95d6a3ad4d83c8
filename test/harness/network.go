package harness

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Network is a bridge with one network namespace for each node, so that the network between nodes can be cut and
// the test process still reaches all of them. It is taken down when the test ends.
type Network struct {
	t      testing.TB
	id     string
	subnet string
	size   int
}

// NewNetwork makes the namespaces for the given number of nodes. It skips the test where the machine can't.
func NewNetwork(t testing.TB, nodes int) *Network {
	t.Helper()
	NeedRoot(t, "network namespaces")
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("did not run: %v", err)
	}
	n := &Network{t: t, id: fmt.Sprintf("v%d", os.Getpid()%100000), subnet: fmt.Sprintf("10.%d.%d", 100+os.Getpid()%100, os.Getpid()/100%250), size: nodes}
	t.Cleanup(n.cleanup)
	if out, err := n.ip("link", "add", n.bridge(), "type", "bridge"); err != nil {
		t.Skipf("did not run: no bridge on this machine: %v: %s", err, out)
	}
	n.must("addr", "add", n.subnet+".254/24", "dev", n.bridge())
	n.must("link", "set", n.bridge(), "up")
	for i := range nodes {
		if out, err := n.ip("netns", "add", n.Namespace(i)); err != nil {
			t.Skipf("did not run: no network namespaces on this machine: %v: %s", err, out)
		}
		host := fmt.Sprintf("%sh%d", n.id, i)
		n.must("link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", n.Namespace(i))
		n.must("link", "set", host, "master", n.bridge(), "up")
		n.must("-n", n.Namespace(i), "addr", "add", n.Host(i)+"/24", "dev", "eth0")
		n.must("-n", n.Namespace(i), "link", "set", "eth0", "up")
		n.must("-n", n.Namespace(i), "link", "set", "lo", "up")
	}
	return n
}

func (n *Network) bridge() string { return n.id + "br" }

// Namespace is the name of node i's namespace.
func (n *Network) Namespace(i int) string { return fmt.Sprintf("%sn%d", n.id, i) }

// Host is the address of node i.
func (n *Network) Host(i int) string { return fmt.Sprintf("%s.%d", n.subnet, i+1) }

// Wrap runs a node inside its namespace; it fits Options.Wrap.
func (n *Network) Wrap(node *Node) []string {
	return []string{"ip", "netns", "exec", n.Namespace(node.Index)}
}

// Cut drops, in silence and in both directions, what a and b send one another: each knows a neighbour address for
// the other that nobody has.
func (n *Network) Cut(a, b int) {
	n.t.Helper()
	for _, pair := range [][2]int{{a, b}, {b, a}} {
		n.must("-n", n.Namespace(pair[0]), "neigh", "replace", n.Host(pair[1]), "lladdr", "02:00:00:00:de:ad", "dev", "eth0", "nud", "permanent")
	}
}

// Heal undoes Cut.
func (n *Network) Heal(a, b int) {
	n.t.Helper()
	for _, pair := range [][2]int{{a, b}, {b, a}} {
		n.must("-n", n.Namespace(pair[0]), "neigh", "del", n.Host(pair[1]), "dev", "eth0")
	}
}

// Isolate cuts node i off from all others; the test process still reaches it.
func (n *Network) Isolate(i int) {
	for j := range n.size {
		if j != i {
			n.Cut(i, j)
		}
	}
}

// Rejoin undoes Isolate.
func (n *Network) Rejoin(i int) {
	for j := range n.size {
		if j != i {
			n.Heal(i, j)
		}
	}
}

func (n *Network) ip(args ...string) ([]byte, error) {
	return exec.Command("ip", args...).CombinedOutput()
}

func (n *Network) must(args ...string) {
	n.t.Helper()
	if out, err := n.ip(args...); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (n *Network) cleanup() {
	for i := range n.size {
		_, _ = n.ip("netns", "del", n.Namespace(i))
		_, _ = n.ip("link", "del", fmt.Sprintf("%sh%d", n.id, i))
	}
	_, _ = n.ip("link", "del", n.bridge())
}
