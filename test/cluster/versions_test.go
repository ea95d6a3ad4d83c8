//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/test/harness"
)

// nextBuild is a vtopd that understands one feature level more than this tree, and is this tree in all else.
func nextBuild(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const file, now = "fsm/objects.go", "LevelMax = LevelFirst\n"
	src, err := os.ReadFile(filepath.Join(root, file))
	if err != nil || strings.Count(string(src), now) != 1 {
		t.Fatalf("%s does not say %q once: %v", file, now, err)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	next := write("objects.go", []byte(strings.Replace(string(src), now, fmt.Sprintf("LevelMax = Level(%d)\n", fsm.LevelMax+1), 1)))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, file): next}})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "vtopd")
	cmd := exec.Command("go", "build", "-overlay", write("overlay.json", overlay), "-o", out, "./cmd/vtopd")
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	return out
}

// versions start nodes with the next build where next says so.
func versions(t *testing.T, next map[string]bool) func(*harness.Node) []string {
	path := nextBuild(t)
	return func(n *harness.Node) []string {
		if !next[n.Name] {
			return nil
		}
		return []string{"sh", "-c", fmt.Sprintf("shift; exec %s \"$@\"", path), "sh"} // instead of the vtopd that comes first
	}
}

// M8: nodes get a newer build one after the other, and then the older one again, under load. The two work together in every
// mixture, and the level stays one that all of them understand.
func TestVersions_RollingUpgradeAndBack(t *testing.T) {
	next := map[string]bool{}
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady, Wrap: versions(t, next)})
	createTopic(t, c, "ledger", 3, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 3, Size: 200, InFlight: 64})
	ledger.WaitMore(500, 60*time.Second)
	last := int64(0)
	for _, newer := range []bool{true, false} {
		for i, n := range c.Nodes {
			if code := n.Stop(30 * time.Second); code != 0 {
				t.Fatalf("%s ended with %d", n.Name, code)
			}
			next[n.Name] = newer
			n.Start()
			n.WaitReady()
			c.WaitInSync("ledger", 60*time.Second)
			createTopic(t, c, fmt.Sprintf("made-%t-%d", newer, i), 1, 3)
			ledger.WaitMore(500, 60*time.Second)
			last = sameStates(t, c, n, last)
			for _, n := range c.Nodes {
				if s, err := n.Status(); err != nil || s.FeatureLevel != uint32(fsm.LevelMax) {
					t.Fatalf("%s: %+v, %v: want feature level %d", n.Name, s, err, fsm.LevelMax)
				}
			}
		}
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// M8: a cluster that is at a level beyond a build's: that build says so and stops, harms nobody, and changes nothing on its disk that
// the newer one could not go on from.
func TestVersions_OlderBuildStopsAtANewerLevel(t *testing.T) {
	next := map[string]bool{"n1": true, "n2": true, "n3": true}
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady, Wrap: versions(t, next)})
	createTopic(t, c, "ledger", 3, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 3, Size: 200, InFlight: 64})
	ledger.WaitMore(500, 60*time.Second)
	old := c.Nodes[2]
	old.Kill()
	next[old.Name] = false
	before := len(old.Log())
	old.Start()
	code := old.WaitEnd(60 * time.Second)
	said := old.Log()[before:]
	t.Logf("ended with %d", code)
	if code != 2 || !strings.Contains(said, fmt.Sprintf("feature level %d", fsm.LevelMax+1)) || strings.Contains(said, "goroutine ") {
		t.Errorf("ended with %d and not with a line that names the level:\n%s", code, tail(said, 30))
	}
	ledger.WaitMore(500, 60*time.Second)
	next[old.Name] = true
	old.Start()
	old.WaitReady()
	c.WaitInSync("ledger", 60*time.Second)
	sameStates(t, c, old, 0)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// tail is the end of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
