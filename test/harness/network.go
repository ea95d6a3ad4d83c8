package harness

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
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
	n, err := TryNetwork(t, nodes)
	if err != nil {
		t.Skipf("did not run: %v", err)
	}
	return n
}

// TryNetwork is NewNetwork for a test that goes on without: the error says why the machine can't.
func TryNetwork(t testing.TB, nodes int) (*Network, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, err
		}
	}
	sweepNetworks()
	taken, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	subnet, err := freeSubnet(os.Getpid(), taken)
	if err != nil {
		return nil, err
	}
	n := &Network{t: t, id: fmt.Sprintf("v%d", os.Getpid()), subnet: subnet, size: nodes}
	t.Cleanup(n.cleanup)
	if err := n.build(); err != nil {
		return nil, fmt.Errorf("no network of namespaces on this machine: %w", err)
	}
	return n, nil
}

// build makes the bridge and the namespaces, and tries what ports are cut with.
func (n *Network) build() error {
	steps := [][]string{
		{"link", "add", n.bridge(), "type", "bridge"},
		{"addr", "add", n.subnet + ".254/24", "dev", n.bridge()},
		{"link", "set", n.bridge(), "up"},
	}
	for i := range n.size {
		ns, host := n.Namespace(i), fmt.Sprintf("%sh%d", n.id, i)
		steps = append(steps, [][]string{
			{"netns", "add", ns},
			{"link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", ns},
			{"link", "set", host, "master", n.bridge(), "up"},
			{"-n", ns, "addr", "add", n.Host(i) + "/24", "dev", "eth0"},
			{"-n", ns, "link", "set", "eth0", "up"},
			{"-n", ns, "link", "set", "lo", "up"},
		}...)
	}
	nowhere := net.JoinHostPort(n.Host(0), "1")
	steps = append(steps, n.portRule("add", 0, nowhere), n.portRule("del", 0, nowhere))
	for _, step := range steps {
		if out, err := n.ip(step...); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(step, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// freeSubnet gives the first three numbers of a network in which none of the addresses is. Test processes that start at the same time
// begin to look at different ones.
func freeSubnet(pid int, taken []net.Addr) (string, error) {
	const networks = 100 * 250
	for i := range networks {
		at := pid + i
		subnet := fmt.Sprintf("10.%d.%d", 100+at%100, at/100%250)
		if !slices.ContainsFunc(taken, func(a net.Addr) bool { return strings.HasPrefix(a.String(), subnet+".") }) {
			return subnet, nil
		}
	}
	return "", errors.New("every network that test processes use is taken on this machine")
}

// leftLink is the name of a bridge or of a node's link, with the process that made it.
var leftLink = regexp.MustCompile(`^v(\d+)(br|h\d+)$`)

// sweepNetworks takes down what test processes left that were killed before they could clean up.
func sweepNetworks() {
	links, err := net.Interfaces()
	if err != nil {
		return
	}
	for _, l := range links {
		m := leftLink.FindStringSubmatch(l.Name)
		if m == nil {
			continue
		}
		if _, err := os.Stat("/proc/" + m[1]); err == nil {
			continue
		}
		if index, ok := strings.CutPrefix(m[2], "h"); ok {
			_ = exec.Command("ip", "netns", "del", "v"+m[1]+"n"+index).Run()
		}
		_ = exec.Command("ip", "link", "del", l.Name).Run()
	}
}

func (n *Network) bridge() string { return n.id + "br" }

// Namespace is the name of node i's namespace.
func (n *Network) Namespace(i int) string { return fmt.Sprintf("%sn%d", n.id, i) }

// Host is the address of node i.
func (n *Network) Host(i int) string { return fmt.Sprintf("%s.%d", n.subnet, i+1) }

// Wrap runs a node inside its namespace; it fits Options.Wrap. (ip netns exec would give it copies of all mounts too, and a disk
// that another node has a copy of can't be unmounted.)
func (n *Network) Wrap(node *Node) []string {
	return []string{"nsenter", "--net=/var/run/netns/" + n.Namespace(node.Index)}
}

// nobody is a neighbour address that no machine has: what is sent there is dropped in silence.
const nobody = "02:00:00:00:de:ad"

// Cut drops, in silence and in both directions, what a and b send one another.
func (n *Network) Cut(a, b int) {
	n.t.Helper()
	n.CutOneWay(a, b)
	n.CutOneWay(b, a)
}

// Heal undoes Cut.
func (n *Network) Heal(a, b int) {
	n.t.Helper()
	n.HealOneWay(a, b)
	n.HealOneWay(b, a)
}

// CutOneWay drops in silence what from sends to to; the other direction goes on.
func (n *Network) CutOneWay(from, to int) {
	n.t.Helper()
	n.must("-n", n.Namespace(from), "neigh", "replace", n.Host(to), "lladdr", nobody, "dev", "eth0", "nud", "permanent")
}

// HealOneWay undoes CutOneWay.
func (n *Network) HealOneWay(from, to int) {
	n.t.Helper()
	n.must("-n", n.Namespace(from), "neigh", "del", n.Host(to), "dev", "eth0")
}

// CutPort drops in silence what from sends to one TCP port of to, HOST:PORT as a node has it: a table of routes of its own
// leads there, and its only gateway is nobody.
func (n *Network) CutPort(from int, to string) {
	n.t.Helper()
	ns, gateway := n.Namespace(from), n.subnet+".253"
	n.must("-n", ns, "neigh", "replace", gateway, "lladdr", nobody, "dev", "eth0", "nud", "permanent")
	n.must("-n", ns, "route", "replace", "default", "via", gateway, "dev", "eth0", "onlink", "table", portTable)
	n.must(n.portRule("add", from, to)...)
}

// HealPort undoes CutPort.
func (n *Network) HealPort(from int, to string) {
	n.t.Helper()
	n.must(n.portRule("del", from, to)...)
}

const portTable = "77"

func (n *Network) portRule(verb string, from int, to string) []string {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		n.t.Fatal(err)
	}
	return []string{"-n", n.Namespace(from), "rule", verb, "to", host, "ipproto", "tcp", "dport", port, "lookup", portTable}
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
