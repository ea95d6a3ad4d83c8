//go:build cluster

package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vtop-log/vtop/drill"
	"github.com/vtop-log/vtop/test/harness"
)

// drillRun is one `vtopctl drill` that runs beside the test.
type drillRun struct {
	t       *testing.T
	cmd     *exec.Cmd
	out     bytes.Buffer
	errOut  bytes.Buffer
	done    chan struct{}
	started time.Time
}

func startDrill(t *testing.T, cmd *exec.Cmd) *drillRun {
	t.Helper()
	r := &drillRun{t: t, cmd: cmd, done: make(chan struct{}), started: time.Now()}
	cmd.Stdout, cmd.Stderr = &r.out, &r.errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(r.done) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-r.done })
	return r
}

// supervise waits for the end of the drill and is the supervisor of the nodes meanwhile: who ends is started again. It
// returns the exit code.
func (r *drillRun) supervise(c *harness.Cluster) int {
	r.t.Helper()
	for deadline := time.Now().Add(6 * time.Minute); ; {
		select {
		case <-r.done:
			return r.cmd.ProcessState.ExitCode()
		case <-time.After(50 * time.Millisecond):
		}
		for _, n := range c.Nodes {
			if !n.Runs() {
				r.t.Logf("%s after %s: started again", n.Name, time.Since(r.started).Round(100*time.Millisecond))
				n.Start()
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the drill has not ended within 6 minutes; so far:\n%s%s", r.out.String(), r.errOut.String())
		}
	}
}

// report reads what -o json printed.
func (r *drillRun) report() *drill.Report {
	r.t.Helper()
	out := new(drill.Report)
	if err := json.Unmarshal(r.out.Bytes(), out); err != nil {
		r.t.Fatalf("vtopctl drill: %v in %q; on standard error: %s", err, r.out.String(), r.errOut.String())
	}
	return out
}

// tellDrill logs a report as an operator would read it.
func tellDrill(t *testing.T, r *drill.Report) {
	t.Helper()
	var text bytes.Buffer
	r.Draw(&text)
	t.Log("\n" + text.String())
}

// Every drill holds on a cluster that keeps its promises, with one endpoint that is a victim, too; the reports are whole, and nothing is
// left behind.
func TestDrill_EachKindHolds(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 4, Flags: []string{"--allow-drills", "--supervised"}})
	for _, kind := range drill.Kinds() {
		t.Run(kind, func(t *testing.T) {
			page := filepath.Join(t.TempDir(), "page.html")
			run := startDrill(t, c.Nodes[0].CtlCommand("drill", kind, "--duration", "12s", "--interval", "3s", "--pause", "4s", "--rate", "300", "--html", page, "-o", "json"))
			code := run.supervise(c)
			report := run.report()
			tellDrill(t, report)
			if code != 0 || !report.Held() || len(report.Blows) == 0 {
				t.Fatalf("exit %d: %s", code, run.errOut.String())
			}
			if report.Load.Acked == 0 || report.Load.Read < report.Load.Acked || report.Down.WorstMS < 0 || len(report.Seconds) < 10 || len(report.Leases) == 0 {
				t.Errorf("the report lacks something: load %+v, down %+v, %d seconds, %d spans", report.Load, report.Down, len(report.Seconds), len(report.Leases))
			}
			html, err := os.ReadFile(page)
			if err != nil || !bytes.Contains(html, []byte("<svg")) || bytes.Contains(html, []byte("<script")) {
				t.Errorf("the page: %v, %d bytes", err, len(html))
			}
			inChromium(t, page)
			nothingLeft(t, c)
		})
	}
}

// nothingLeft wants no topic of a drill on any node; one that was away hears of the deletion a little later.
func nothingLeft(t *testing.T, c *harness.Cluster) {
	t.Helper()
	c.Eventually(20*time.Second, "no topic of a drill left behind", func() error {
		for _, n := range c.Nodes {
			if out, errOut, code := n.Ctl("topic", "list"); code != 0 || strings.Contains(out, "vtop-drill") {
				return fmt.Errorf("%s: exit %d: %s%s", n.Name, code, out, errOut)
			}
		}
		return nil
	})
}

// inChromium opens the page as a person would, if there is a browser.
func inChromium(t *testing.T, page string) {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chromium-headless-shell"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "file://"+page).Output()
		if err != nil || !bytes.Contains(out, []byte("<polyline")) {
			t.Errorf("%s: %v: %d bytes", name, err, len(out))
		}
		return
	}
	t.Log("did not run: no headless Chromium on this machine to open the page in")
}

// A node that was not started for it strikes nothing, and says why; what needs no help works.
func TestDrill_RefusedWithoutAllowDrills(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3})
	pids := []int{c.Nodes[0].PID(), c.Nodes[1].PID(), c.Nodes[2].PID()}
	for _, kind := range drill.Kinds() {
		if !drill.Strikes(kind) {
			continue
		}
		_, errOut, code := c.Nodes[0].Ctl("drill", kind, "--duration", "5s")
		if code != 3 || !strings.Contains(errOut, "--allow-drills") {
			t.Errorf("drill %s: exit %d: %s", kind, code, errOut)
		}
	}
	for i, n := range c.Nodes {
		// Case: nor does it if somebody asks it by itself.
		req := fmt.Sprintf(`{"node":%q,"fault":"kill"}`, n.Name)
		out, _ := exec.Command("curl", "-s", "-X", "POST", "-d", req, "http://"+n.Admin+"/v1/local/drill").CombinedOutput()
		if !strings.Contains(string(out), "not_allowed") {
			t.Errorf("%s answers %s", n.Name, out)
		}
		if !n.Runs() || n.PID() != pids[i] {
			t.Errorf("%s was struck", n.Name)
		}
	}
	// Case: on a topic that is there, with records of others in it and coming in, twice; it stays, and so do the records.
	createTopic(t, c, "orders", 2, 3)
	others := harness.StartLedger(t, c.Bootstrap(), "orders", harness.LedgerOptions{Ranges: 2, InFlight: 16, PerSecond: 200})
	others.WaitMore(100, 30*time.Second)
	for range 2 {
		run := startDrill(t, c.Nodes[0].CtlCommand("drill", "leader-transfer", "--topic", "orders", "--duration", "12s", "--interval", "1s", "-o", "json"))
		code := run.supervise(c)
		report := run.report()
		tellDrill(t, report)
		if code != 0 || len(report.Blows) < 2 || report.OwnTopic || report.Load.Read <= report.Load.Acked {
			t.Errorf("leader-transfer on orders: exit %d: %s", code, run.errOut.String())
		}
	}
	others.Stop(30 * time.Second)
	if _, errOut, code := c.Nodes[0].Ctl("topic", "describe", "orders"); code != 0 {
		t.Errorf("the topic is gone: %s", errOut)
	}
}

// A node without a supervisor starts its own successor: the same command, on the same disk.
func TestDrill_NodeStartsItsOwnSuccessor(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: []string{"--allow-drills"}})
	t.Cleanup(func() { killByDir(t, c) })
	run := startDrill(t, c.Nodes[0].CtlCommand("drill", "leader-kill", "--duration", "8s", "--interval", "2s", "-o", "json"))
	<-run.done
	report := run.report()
	tellDrill(t, report)
	if code := run.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("exit %d: %s", code, run.errOut.String())
	}
	struck := map[string]bool{}
	for _, b := range report.Blows {
		struck[b.Node] = true
	}
	for _, n := range c.Nodes {
		if n.Runs() == struck[n.Name] {
			t.Errorf("%s was struck: %v; its first process runs: %v", n.Name, struck[n.Name], n.Runs())
		}
		if err := n.Get("/readyz", nil); err != nil {
			t.Errorf("%s: %v", n.Name, err)
		}
	}
}

// killByDir ends the processes of all nodes, whoever started them.
func killByDir(t *testing.T, c *harness.Cluster) {
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		for _, n := range c.Nodes {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); err == nil && strings.Contains(string(b), "--data-dir\x00"+n.Dir+"\x00") {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					t.Error(err)
				}
			}
		}
	}
}

// Ctrl-C in the middle of a blow: no other one falls, the paused node goes on, and what there is is checked.
func TestDrill_InterruptHeals(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: []string{"--allow-drills", "--supervised"}})
	cmd := c.Nodes[0].CtlCommand("drill", "leader-pause", "--duration", "5m", "--interval", "1s", "--pause", "6s")
	lines, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var blows atomic.Int32
	var told strings.Builder
	for sc := bufio.NewScanner(lines); sc.Scan(); {
		told.WriteString(sc.Text() + "\n")
		if strings.HasPrefix(sc.Text(), "blow ") && blows.Add(1) == 1 {
			time.Sleep(time.Second) // into the pause
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait() // its exit code is looked at below
	t.Log("\n" + told.String() + errOut.String())
	if code := cmd.ProcessState.ExitCode(); code != 130 || blows.Load() != 1 || !strings.Contains(told.String(), "interrupted after 1 blows; every check held") {
		t.Errorf("exit %d after %d blows", code, blows.Load())
	}
	for _, n := range c.Nodes {
		if err := n.Get("/readyz", nil); err != nil {
			t.Errorf("%s is not well: %v", n.Name, err)
		}
	}
	nothingLeft(t, c)
}

// The demonstration of the README: vtopd dev allows drills, and a bare vtopctl finds it.
func TestDrill_OnDev(t *testing.T) {
	dev := startDev(t, filepath.Join(t.TempDir(), "vtop-data"))
	defer func() { _ = dev.Process.Kill() }()
	run := startDrill(t, exec.Command(harness.Binary(t, "vtopctl"), "drill", "leader-kill", "--duration", "15s", "--interval", "5s"))
	<-run.done
	t.Log("\n" + run.out.String() + run.errOut.String())
	if code := run.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit %d", code)
	}
	stopDev(t, dev)
}

// Over TLS the operator's certificate is what every other changing verb takes, and no certificate is refused.
func TestDrill_OverTLS(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, TLS: true, Flags: []string{"--allow-drills", "--supervised"}})
	out, err := exec.Command(harness.Binary(t, "vtopctl"), "--endpoint", c.Nodes[0].Admin, "drill", "leader-kill", "--duration", "5s").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() == 1 {
		t.Errorf("without a certificate: %v: %s", err, out)
	}
	run := startDrill(t, c.Nodes[0].CtlCommand("drill", "leader-kill", "--duration", "6s", "--interval", "2s", "-o", "json"))
	code := run.supervise(c)
	report := run.report()
	tellDrill(t, report)
	if code != 0 || len(report.Blows) == 0 {
		t.Errorf("exit %d: %s", code, run.errOut.String())
	}
}
