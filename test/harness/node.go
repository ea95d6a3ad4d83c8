package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Node is one vtopd process, or the place of one.
type Node struct {
	Name                       string
	Index                      int
	Dir                        string
	Kafka, Peer, Gossip, Admin string
	// Extra flags for the next start.
	Extra []string
	// Bare, if set, are all arguments of the next start.
	Bare []string
	// Env is added to the environment of the next start.
	Env []string

	cluster *Cluster
	logPath string

	paused atomic.Bool

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{}
	result error
}

// Args are the arguments of vtopd.
func (n *Node) Args() []string {
	c := n.cluster
	if n.Bare != nil {
		return n.Bare
	}
	args := []string{
		"--node-id", n.Name, "--data-dir", n.Dir,
		"--kafka-addr", n.Kafka, "--peer-addr", n.Peer, "--gossip-addr", n.Gossip, "--admin-addr", n.Admin,
		"--join", c.founders(), "--bootstrap-expect", strconv.Itoa(c.opt.Nodes),
	}
	if c.certs != "" {
		base := filepath.Join(c.certs, n.Name)
		args = append(args, "--tls-cert", base+".crt", "--tls-key", base+".key", "--tls-ca", filepath.Join(c.certs, "ca.crt"))
	}
	args = append(args, c.opt.Flags...)
	if c.opt.NodeFlags != nil {
		args = append(args, c.opt.NodeFlags(n.Index)...)
	}
	return append(args, n.Extra...)
}

// Start starts the process and returns at once.
func (n *Node) Start() {
	t := n.cluster.T
	t.Helper()
	if n.Runs() {
		t.Fatalf("%s runs already", n.Name)
	}
	if err := os.MkdirAll(n.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	logFile, err := os.OpenFile(n.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	argv := append([]string{Binary(t, "vtopd")}, n.Args()...)
	if n.cluster.opt.Wrap != nil {
		argv = append(n.cluster.opt.Wrap(n), argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env = append(append(os.Environ(), n.cluster.opt.Env...), n.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.ended, n.result = cmd, ended, nil
	n.mu.Unlock()
	go func() {
		err := cmd.Wait()
		_ = logFile.Close()
		n.mu.Lock()
		n.result = err
		n.mu.Unlock()
		close(ended)
	}()
}

// Runs reports whether the process runs, paused or not.
func (n *Node) Runs() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// Exited gives the exit code of a process that has ended, -1 if a signal ended it; false if it runs or never did.
func (n *Node) Exited() (code int, ended bool) {
	if n.PID() == 0 || n.Runs() {
		return 0, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd.ProcessState.ExitCode(), true
}

// PID of the process that was started; with a wrapper, the wrapper's.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// Signal sends a signal to the process group, so that a wrapper and what it wraps both get it.
func (n *Node) Signal(sig syscall.Signal) {
	n.cluster.T.Helper()
	if err := syscall.Kill(-n.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		n.cluster.T.Fatalf("signal %s to %s: %v", sig, n.Name, err)
	}
}

// Kill ends the process with SIGKILL and waits for its end.
func (n *Node) Kill() {
	n.cluster.T.Helper()
	n.Signal(syscall.SIGKILL)
	n.WaitEnd(60 * time.Second)
}

func (n *Node) killQuietly() {
	if n.Runs() {
		_ = syscall.Kill(-n.PID(), syscall.SIGKILL)
		<-n.ended
	}
}

// Pause stops the process with SIGSTOP; Resume lets it go on. A paused node runs, but is no node to be asked.
// It returns when every thread of the process has stopped: the signal reaches them one by one.
func (n *Node) Pause() {
	n.Signal(syscall.SIGSTOP)
	n.paused.Store(true)
	for l := NewLimit(10 * time.Second); !stopped(n.PID()) && !l.Over(); {
		time.Sleep(time.Millisecond)
	}
}

// stopped reports whether all threads of the process are in state T (stopped) or t (stopped by a tracer).
func stopped(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		return true
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that ended
		}
		_, rest, ok := strings.Cut(string(b), ") ")
		if ok && !strings.HasPrefix(rest, "T") && !strings.HasPrefix(rest, "t") {
			return false
		}
	}
	return true
}

// Resume lets a paused process go on.
func (n *Node) Resume() { n.Signal(syscall.SIGCONT); n.paused.Store(false) }

// Stop asks for an orderly end and returns the exit code.
func (n *Node) Stop(limit time.Duration) int {
	n.cluster.T.Helper()
	n.Signal(syscall.SIGTERM)
	return n.WaitEnd(limit)
}

// WaitEnd waits for the end of the process and returns its exit code, -1 if a signal ended it.
func (n *Node) WaitEnd(limit time.Duration) int {
	n.cluster.T.Helper()
	if limit = patient(limit); !closed(n.ended, limit) {
		n.cluster.T.Fatalf("%s did not end within %s", n.Name, limit)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var exit *exec.ExitError
	if errors.As(n.result, &exit) {
		return exit.ExitCode()
	}
	if n.result != nil {
		n.cluster.T.Fatalf("%s: %v", n.Name, n.result)
	}
	return 0
}

// Get reads JSON from the admin port into v.
func (n *Node) Get(path string, v any) error {
	resp, err := n.client().Get(n.url(path))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %s: %s", n.Admin, path, resp.Status, bytes.TrimSpace(body))
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(body, v)
}

func (n *Node) client() *http.Client { return n.cluster.http }

func (n *Node) url(path string) string {
	if n.cluster.certs != "" {
		return "https://" + n.Admin + path
	}
	return "http://" + n.Admin + path
}

// WaitReady waits until the node answers ready.
func (n *Node) WaitReady() {
	t := n.cluster.T
	t.Helper()
	Eventually(t, 60*time.Second, n.Name+" ready", func() error {
		if !n.Runs() {
			t.Fatalf("%s ended before it was ready", n.Name)
		}
		return n.Get("/readyz", nil)
	})
}

// Ctl runs vtopctl against the node and returns its output and exit code.
func (n *Node) Ctl(args ...string) (stdout, stderr string, code int) {
	n.cluster.T.Helper()
	cmd := n.CtlCommand(args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.cluster.T.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// CtlCommand is a vtopctl against the node, not started.
func (n *Node) CtlCommand(args ...string) *exec.Cmd {
	n.cluster.T.Helper()
	flags := []string{"--endpoint", n.Admin}
	if certs := n.cluster.certs; certs != "" {
		base := filepath.Join(certs, operator)
		flags = append(flags, "--tls-cert", base+".crt", "--tls-key", base+".key", "--tls-ca", filepath.Join(certs, "ca.crt"))
	}
	return exec.Command(Binary(n.cluster.T, "vtopctl"), append(flags, args...)...)
}

// CtlJSON runs vtopctl -o json and decodes what it prints; it fails the test on another exit code than 0.
func (n *Node) CtlJSON(v any, args ...string) {
	t := n.cluster.T
	t.Helper()
	out, errOut, code := n.Ctl(append(args, "-o", "json")...)
	if code != 0 {
		t.Fatalf("vtopctl %s: exit %d: %s", strings.Join(args, " "), code, errOut)
	}
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("vtopctl %s: %v in %q", strings.Join(args, " "), err, out)
	}
}

// Log gives all that the node has logged.
func (n *Node) Log() string {
	b, err := os.ReadFile(n.logPath)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// LogTail gives the last lines of the log.
func (n *Node) LogTail(lines int) string {
	all := strings.Split(strings.TrimRight(n.Log(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
