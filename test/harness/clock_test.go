package harness

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

const tellTime = "VTOP_HARNESS_TELL_TIME"

// TestStepClock_TellsTime is the process of the test below: at each line it is given it says its time of day and the
// monotonic time since its start.
func TestStepClock_TellsTime(t *testing.T) {
	if os.Getenv(tellTime) == "" {
		t.Skip("did not run: it is a part of the next test")
	}
	started := time.Now()
	for range 4 { // threads that ask for the time while the code that tells it is changed
		go func() {
			for time.Now().Unix() != 0 {
			}
		}()
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		now := time.Now()
		fmt.Printf("told %d %d\n", now.UnixNano(), now.Sub(started))
	}
	os.Exit(0)
}

func TestStepClock(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestStepClock_TellsTime$")
	cmd.Env = append(os.Environ(), tellTime+"=1", "GOMAXPROCS=4")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	answers := bufio.NewReader(out)
	ask := func() (wall time.Time, elapsed time.Duration) {
		t.Helper()
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		var nano, since int64
		line, err := answers.ReadString('\n')
		if _, scanErr := fmt.Sscanf(line, "told %d %d", &nano, &since); err != nil || scanErr != nil {
			t.Fatalf("%q: %v, %v", line, err, scanErr)
		}
		return time.Unix(0, nano), time.Duration(since)
	}
	ask()
	for _, step := range []time.Duration{3 * time.Hour, -2 * time.Hour, 0, 48 * time.Hour} {
		before := time.Now()
		_, elapsedBefore := ask()
		if err := stepClock(cmd.Process.Pid, step); err != nil {
			t.Skipf("did not run: %v", err)
		}
		wall, elapsed := ask()
		took := time.Since(before)
		if off := wall.Sub(before) - step; off < 0 || off > took {
			t.Errorf("stepped by %s: it tells a time that is %s off", step, off)
		}
		if went := elapsed - elapsedBefore; went < 0 || went > took {
			t.Errorf("stepped by %s: its monotonic clock went on by %s within %s", step, went, took)
		}
	}
}
