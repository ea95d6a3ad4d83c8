package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const root = "../../.."

// edited gives each file of a mutant as it is to be compiled.
func edited(name string, edits []Edit) (map[string]string, error) {
	out := map[string]string{}
	for _, e := range edits {
		text, ok := out[e.File]
		if !ok {
			raw, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, err
			}
			text = string(raw)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("%s has %d places that read %q, want 1: the mutant %q is to be brought up to date", e.File, n, e.Old, name)
		}
		out[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return out, nil
}

// TestMutants_StillApply keeps the list in step with the code.
func TestMutants_StillApply(t *testing.T) {
	for _, m := range All {
		if _, err := edited(m.Name, m.Edits); err != nil {
			t.Error(err)
		}
		if m.Lives < 1 || len(m.Edits) == 0 {
			t.Errorf("%s: %d lives, %d edits", m.Name, m.Lives, len(m.Edits))
		}
	}
	for _, m := range InOrders {
		if _, err := edited(m.Name, m.Edits); err != nil {
			t.Error(err)
		}
		if len(m.Edits) == 0 {
			t.Errorf("%s: no edits", m.Name)
		}
	}
}

var seedOf = regexp.MustCompile(`again: make sim SEED=(\d+)`)

// TestMutants_AreFound builds the simulation, or the test that is named, with each mutant in it, and wants it to fail, within the lives that
// the list states. It takes some minutes and runs only when VTOP_SIM_MUTANTS is set (make sim-mutants): to all, or to a part of a name.
func TestMutants_AreFound(t *testing.T) {
	which := os.Getenv("VTOP_SIM_MUTANTS")
	if which == "" {
		t.Skip("set VTOP_SIM_MUTANTS=all, or run make sim-mutants")
	}
	wanted := func(name string) bool { return which == "all" || strings.Contains(name, which) }
	for _, m := range All {
		if wanted(m.Name) {
			t.Run(m.Name, func(t *testing.T) { findInLives(t, m) })
		}
	}
	for _, m := range InOrders {
		if wanted(m.Name) {
			t.Run(m.Name, func(t *testing.T) { findElsewhere(t, m) })
		}
	}
}

// build compiles the tests of a package with the edits, and returns the command that runs one of them.
func build(t *testing.T, name, pkg, test string, edits []Edit) *exec.Cmd {
	t.Helper()
	files, err := edited(name, edits)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for name, text := range files {
		at, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[at] = copied
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	compile := exec.Command("go", "test", "-c", "-overlay", list, "-o", bin, "./"+pkg)
	compile.Dir = root
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	run := exec.Command(bin, "-test.run", "^"+test+"$", "-test.timeout", "20m")
	run.Dir = filepath.Join(root, pkg)
	return run
}

func findInLives(t *testing.T, m Mutant) {
	run := build(t, m.Name, "test/sim", "TestLives", m.Edits)
	run.Env = append(os.Environ(), "VTOP_SIM_SEED=1", fmt.Sprintf("VTOP_SIM_LIVES=%d", m.Lives), "VTOP_SIM_TRACE=")
	began := time.Now()
	out, err := run.CombinedOutput()
	found := seedOf.FindSubmatch(out)
	if err == nil {
		t.Fatalf("not found in %d lives, %s", m.Lives, time.Since(began).Round(time.Second))
	}
	if found == nil { // it crashed, or time stood still: found, too
		t.Logf("found: %v\n%.600s", err, out)
		return
	}
	t.Logf("found in life %s of %d, %s: %s", found[1], m.Lives, time.Since(began).Round(time.Second), firstFailure(string(out)))
}

// findElsewhere wants the named test to fail, and no other way than a test does.
func findElsewhere(t *testing.T, m Elsewhere) {
	began := time.Now()
	out, err := build(t, m.Name, m.Package, m.Test, m.Edits).CombinedOutput()
	if failed := "--- FAIL: " + m.Test; err == nil || !strings.Contains(string(out), failed) {
		t.Fatalf("not found by %s of %s, %s: %v\n%.600s", m.Test, m.Package, time.Since(began).Round(time.Second), err, out)
	}
	why := failure.FindString(string(out))
	t.Logf("found by %s of %s, %s: %.200s", m.Test, m.Package, time.Since(began).Round(time.Second), why)
}

// failure is the first thing that a test says.
var failure = regexp.MustCompile(`\w+_test\.go:\d+: .*`)

// firstFailure is the line below the one that names the seed.
func firstFailure(out string) string {
	_, after, _ := strings.Cut(out, "of virtual time:\n")
	line, _, _ := strings.Cut(strings.TrimSpace(after), "\n")
	return fmt.Sprintf("%.160s", line)
}
