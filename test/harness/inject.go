package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Injection is an strace that tampers with the system calls of a node.
type Injection struct {
	cmd  *exec.Cmd
	done chan struct{}
	out  string
}

// Inject attaches strace to a running node with the given -e expressions, as "trace=fdatasync,fsync" and
// "inject=fdatasync,fsync:delay_enter=60s", and returns when every thread is traced. It skips the test where strace
// is missing or may not attach. What still runs when the test ends is stopped.
func (n *Node) Inject(expressions ...string) *Injection {
	n.cluster.T.Helper()
	in, err := n.TryInject(expressions...)
	if err != nil {
		n.cluster.T.Skipf("did not run: %v", err)
	}
	return in
}

// TryInject is Inject for a test that goes on without: the error says why the machine can't.
func (n *Node) TryInject(expressions ...string) (*Injection, error) {
	t := n.cluster.T
	strace, err := exec.LookPath("strace")
	if err != nil {
		return nil, err
	}
	in := &Injection{done: make(chan struct{}), out: filepath.Join(n.cluster.base, n.Name+".strace")}
	args := []string{"-f", "-qq", "-o", in.out, "-p", fmt.Sprint(n.PID())}
	for _, e := range expressions {
		args = append(args, "-e", e)
	}
	in.cmd = exec.Command(strace, args...)
	in.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var errOut strings.Builder
	in.cmd.Stderr = &errOut
	if err := in.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = in.cmd.Wait(); close(in.done) }()
	t.Cleanup(in.Stop)
	for l := NewLimit(patience); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-in.done:
			return nil, fmt.Errorf("strace may not attach here: %s", errOut.String())
		default:
		}
		err := traced(n.PID())
		if err == nil {
			return in, nil
		}
		if l.Over() {
			t.Fatalf("strace on %s: not within %s: %v", n.Name, patience, err)
		}
	}
}

// traced returns nil if every thread of the process has a tracer.
func traced(pid int) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		return fmt.Errorf("no threads of %d: %w", pid, err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			return err
		}
		if strings.Contains(string(b), "TracerPid:\t0\n") {
			return fmt.Errorf("%s has no tracer", task)
		}
	}
	return nil
}

// Stop detaches strace; the node's calls are its own again.
func (in *Injection) Stop() {
	select {
	case <-in.done:
		return
	default:
	}
	_ = in.cmd.Process.Signal(syscall.SIGTERM)
	if !closed(in.done, 10*time.Second) {
		_ = in.cmd.Process.Kill()
		<-in.done
	}
}

// Calls gives the lines that strace has written.
func (in *Injection) Calls() string {
	b, err := os.ReadFile(in.out)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
