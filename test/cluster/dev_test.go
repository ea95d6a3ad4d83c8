//go:build cluster

package cluster

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// realFile gives a file of 100 000 lines or more that nobody made for this test: what the package database of the
// machine knows. Empty lines are left out, since a Kafka record of no bytes is no line for kcat.
func realFile(t *testing.T) string {
	t.Helper()
	sources, err := filepath.Glob("/var/lib/dpkg/info/*.list")
	if err != nil || len(sources) == 0 {
		sources, _ = filepath.Glob("/usr/share/doc/*/copyright")
	}
	sources = append(sources, "/var/lib/dpkg/status", "/var/lib/dpkg/available")
	var out bytes.Buffer
	lines := 0
	for _, src := range sources {
		f, err := os.Open(src)
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			if len(sc.Bytes()) > 0 {
				out.Write(sc.Bytes())
				out.WriteByte('\n')
				lines++
			}
		}
		_ = f.Close()
	}
	if lines < 100_000 {
		t.Skipf("the package database of this machine has only %d lines, 100 000 are wanted", lines)
	}
	path := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed: %v", program, err)
	}
	return path
}

func kcat(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(needs(t, "kcat"), args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("kcat %s: %v: %s", strings.Join(args, " "), err, errOut.String())
	}
	return out.Bytes()
}

// startDev runs `vtopd dev` and returns when it has printed that it is ready.
func startDev(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	for _, port := range []string{"9092", "9192", "9292", "9642"} {
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Skipf("port %s is in use on this machine: %v", port, err)
		}
		_ = l.Close()
	}
	cmd := exec.Command(harness.Binary(t, "vtopd"), "dev", "--data-dir", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		seen := false
		for sc := bufio.NewScanner(out); sc.Scan(); {
			t.Log("dev: " + sc.Text())
			if strings.HasPrefix(sc.Text(), "ready") && !seen {
				seen = true
				close(ready)
			}
		}
	}()
	select {
	case <-ready:
	case <-time.After(90 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatal("vtopd dev was not ready within 90 s")
	}
	return cmd
}

func stopDev(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("vtopd dev ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		t.Error("vtopd dev did not stop within 30 s")
	}
}

// The main job: a real file goes in through kcat and comes back byte for byte, also after the leader was killed and
// after the whole cluster was stopped and started again.
func TestDev_RealFileThroughKcatSurvivesKillOfTheLeader(t *testing.T) {
	needs(t, "kcat")
	file := realFile(t)
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "vtop-data")
	dev := startDev(t, dir)
	defer func() { _ = dev.Process.Kill() }()
	kcat(t, "-P", "-b", "127.0.0.1:9092", "-t", "lines", "-l", file)
	consume := func(when string) {
		t.Helper()
		got := kcat(t, "-C", "-b", "127.0.0.1:9092,127.0.0.1:9192,127.0.0.1:9292", "-t", "lines", "-o", "beginning", "-e", "-q")
		if !bytes.Equal(got, want) {
			t.Fatalf("%s: read %d bytes, wrote %d, not the same", when, len(got), len(want))
		}
	}
	consume("at first")

	ctl := harness.Binary(t, "vtopctl")
	out, err := exec.Command(ctl, "lease", "list", "lines", "-o", "json").CombinedOutput()
	if err != nil {
		t.Fatalf("a bare vtopctl: %v: %s", err, out)
	}
	holder := regexpFind(t, `"holder": "(n\d)"`, string(out))
	killDevNode(t, dir, holder)
	consume("after kill -9 of " + holder)
	stopDev(t, dev)
	dev = startDev(t, dir)
	consume("after a restart of all")
	stopDev(t, dev)
}
