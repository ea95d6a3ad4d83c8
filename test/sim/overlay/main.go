// Command overlay writes, into the directory that it is given, what makes a run of the simulation a function of its seed: copies of a
// few files of the Go runtime with the chance taken out of them, and the list that `go test -overlay` reads. Within a bubble of virtual
// time the order of timers that are due together, the choice of a select with several ready cases, the seeds and the iteration
// of maps and math/rand's own generator then come from one stream that begins anew with each bubble. Besides, no goroutine is preempted by
// the wall clock, and no mutex becomes fair by it.
//
// It prints the path of the list. If the runtime is not the one that it knows, it says so and fails: then only the
// plain simulation is to be had, whose lives a seed repeats less exactly (docs/testing.md).
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

type edit struct{ file, old, new string }

var edits = []edit{
	{"runtime/synctest.go", "	timers  timers\n	id      uint64 // unique id\n", "	timers  timers\n	chance  uint64\n	id      uint64 // unique id\n"},
	{"runtime/rand.go", "	globalRand.state.Init(*seed)\n", "	for i := range seed {\n		seed[i] = byte(i + 1)\n	}\n	globalRand.state.Init(*seed)\n"},
	{"runtime/rand.go", "func rand() uint64 {\n", "func rand() uint64 {\n	if b := getg().bubble; b != nil {\n		return b.draw()\n	}\n"},
	{"runtime/rand.go", "//go:linkname maps_rand", `// draw is splitmix64.
//
//go:nosplit
func (b *synctestBubble) draw() uint64 {
	b.chance += 0x9e3779b97f4a7c15
	z := b.chance
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// bubbleChance is for code that may run on the scheduler's stack.
func bubbleChance() uint32 {
	gp := getg()
	if gp.m.curg != nil {
		gp = gp.m.curg
	}
	if gp.bubble == nil {
		return 0
	}
	return uint32(gp.bubble.draw() >> 32)
}

//go:linkname maps_rand`},
	{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := cheaprandn(uint32(norder + 1))\n		if gp.bubble != nil {\n			j = bubbleChance() % uint32(norder+1)\n		}"},
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = bubbleChance()"},
	{"runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000 // 10ms", "const forcePreemptNS = 1 << 50"},
	{"internal/sync/mutex.go", "starvationThresholdNs = 1e6", "starvationThresholdNs = 1 << 50"},
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src")
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	texts := map[string]string{}
	for _, e := range edits {
		text, ok := texts[e.file]
		if !ok {
			raw, err := os.ReadFile(filepath.Join(src, e.file))
			if err != nil {
				return err
			}
			text = string(raw)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return fmt.Errorf("%s of this Go has %d places that read %q, want 1", e.file, n, e.old)
		}
		texts[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		at := filepath.Join(dir, strings.ReplaceAll(file, "/", "_")+".txt")
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			return err
		}
		replace[filepath.Join(src, file)] = at
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, list, 0o644); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}
