//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// One node takes its settings from a file, one from the environment, one from flags, with a gossip key; they find one
// another, and one that comes back under other addresses is found again.
func TestSettings_FileEnvironmentAndNewAddresses(t *testing.T) {
	c := harness.New(t, harness.Options{Nodes: 3, Flags: []string{"--gossip-key", "MDEyMzQ1Njc4OWFiY2RlZg=="}})
	asFile(t, c.Nodes[0])
	asEnvironment(c.Nodes[1])
	for _, n := range c.Nodes {
		n.Start()
	}
	c.WaitReady()
	createTopic(t, c, "ledger", 3, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 3, InFlight: 64})
	ledger.WaitMore(200, 30*time.Second)
	for _, n := range c.Nodes[1:] {
		if code := n.Stop(10 * time.Second); code != 0 {
			t.Errorf("%s ended with code %d", n.Name, code)
		}
		// The addresses that the others were told are no longer true; --join still names the old ones.
		joined := n.Args()
		n.Bare, n.Env = nil, nil
		n.Move()
		n.Bare = withJoin(n.Args(), joined)
		n.Start()
		n.WaitReady()
		c.Eventually(30*time.Second, "the new address of "+n.Name, func() error { return listed(c, n) })
		c.WaitInSync("ledger", 60*time.Second)
	}
	ledger.WaitMore(200, 30*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// settings gives the flags of args as pairs of name and value.
func settings(args []string) map[string]string {
	out := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		out[strings.TrimPrefix(args[i], "--")] = args[i+1]
	}
	return out
}

func asFile(t *testing.T, n *harness.Node) {
	t.Helper()
	var text strings.Builder
	for name, value := range settings(n.Args()) {
		switch name {
		case "join":
			fmt.Fprintf(&text, "join = [%q]\n", strings.Split(value, ","))
		case "bootstrap-expect":
			fmt.Fprintf(&text, "%s = %s\n", name, value)
		default:
			fmt.Fprintf(&text, "%s = %q\n", name, value)
		}
	}
	file := filepath.Join(t.TempDir(), "vtopd.toml")
	body := strings.ReplaceAll(strings.ReplaceAll(text.String(), "[[", "["), "]]", "]")
	body = strings.ReplaceAll(body, `" "`, `", "`)
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Bare = []string{"--config", file}
}

func asEnvironment(n *harness.Node) {
	for name, value := range settings(n.Args()) {
		n.Env = append(n.Env, "VTOP_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+value)
	}
	n.Bare = []string{}
}

// withJoin gives args with the --join of old.
func withJoin(args, old []string) []string {
	join, ok := settings(old)["join"]
	if !ok {
		return args
	}
	out := append([]string(nil), args...)
	for i := range out {
		if out[i] == "--join" {
			out[i+1] = join
		}
	}
	return out
}

func listed(c *harness.Cluster, n *harness.Node) error {
	var errs []error
	for _, other := range c.Running() {
		var nodes []harness.NodeLine
		if err := other.Get("/v1/nodes", &nodes); err != nil {
			return err
		}
		for _, line := range nodes {
			if line.Name == n.Name && (line.PeerAddr != n.Peer || line.KafkaAddr != n.Kafka || !line.Alive) {
				errs = append(errs, fmt.Errorf("%s lists %+v", other.Name, line))
			}
		}
	}
	return errors.Join(errs...)
}

// A second live node under a name that is taken is refused, and both are named; the first goes on undisturbed.
func TestSettings_SecondLiveNodeOfANameIsRefused(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
	ledger.WaitMore(100, 30*time.Second)
	_, before := c.Holder("ledger", 0)
	twin := c.AddNode()
	args := twin.Args()
	for i := range args {
		if args[i] == "--node-id" {
			args[i+1] = c.Nodes[0].Name
		}
	}
	twin.Bare = args
	twin.Start()
	c.Eventually(30*time.Second, "a refusal that names both", func() error {
		log := twin.Log()
		if strings.Contains(log, c.Nodes[0].Peer) && strings.Contains(log, "name") && strings.Contains(log, "alive") {
			return nil
		}
		return fmt.Errorf("its log says: %s", twin.LogTail(5))
	})
	if err := twin.Get("/readyz", nil); err == nil {
		t.Error("the second node of a name is ready")
	}
	for line := range strings.Lines(twin.Log()) {
		if strings.Contains(line, "alive") {
			t.Logf("the second node says: %s", line)
			break
		}
	}
	twin.Kill()
	ledger.WaitMore(100, 30*time.Second)
	if _, after := c.Holder("ledger", 0); after.Epoch != before.Epoch {
		t.Errorf("the lease moved from epoch %d to %d", before.Epoch, after.Epoch)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
