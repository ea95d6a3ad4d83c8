package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

const (
	devRestartPause = 2 * time.Second
	devStopLimit    = 12 * time.Second
	devReadyLimit   = 60 * time.Second
	devMost         = 9
)

// devNode is one child of vtopd dev.
type devNode struct {
	name                       string
	kafka, peer, gossip, admin int
	dir                        string

	mu  sync.Mutex
	pid int
}

func devCommand() *cobra.Command {
	var dataDir string
	var nodes int
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Start a cluster on loopback for a first try",
		Long: `Starts three nodes on loopback, each a process of its own, and supervises them: one that dies is started again
after two seconds, so that kill -9 and vtopctl drill are fair experiments. The first node has the default ports, so that
kcat -b 127.0.0.1:9092 and a bare vtopctl reach it. Ctrl-C stops all of them in an orderly way; the data stays
in the data directory, and the next vtopd dev goes on with it.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDev(cmd.Context(), cmd.OutOrStdout(), dataDir, nodes)
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "./vtop-data", "directory that holds a directory for each node")
	cmd.Flags().IntVar(&nodes, "nodes", 3, "number of nodes")
	return cmd
}

func devNodes(dataDir string, count int) ([]*devNode, error) {
	if count < 1 || count > devMost {
		return nil, fmt.Errorf("%w: --nodes %d: want 1 to %d", errUsage, count, devMost)
	}
	abs, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, err
	}
	// Fewer nodes than the cluster was born with may be no majority: they would wait for the others without a word.
	for born := devMost; born > count; born-- {
		if _, err := os.Stat(filepath.Join(abs, "n"+strconv.Itoa(born), "store")); err == nil {
			return nil, fmt.Errorf("%w: --nodes %d, and %s has the data of %d nodes: say --nodes %d, or give another --data-dir", errUsage, count, dataDir, born, born)
		}
	}
	nodes := make([]*devNode, count)
	for i := range nodes {
		name := "n" + strconv.Itoa(i+1)
		nodes[i] = &devNode{
			name: name, dir: filepath.Join(abs, name),
			kafka: 9092 + 100*i, peer: 9640 + 100*i, gossip: 9641 + 100*i, admin: 9642 + 100*i,
		}
	}
	return nodes, nil
}

func runDev(ctx context.Context, out io.Writer, dataDir string, count int) error {
	nodes, err := devNodes(dataDir, count)
	if err != nil {
		return err
	}
	if err := portsFree(nodes); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own executable: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	go func() {
		<-ctx.Done()
		fmt.Fprintln(out, "stopping")
	}()
	for _, n := range nodes {
		group.Go(func() error { return n.supervise(ctx, out, exe, nodes) })
	}
	group.Go(func() error {
		fmt.Fprintf(out, "starting %d nodes, data under %s\n", count, dataDir)
		if err := devReady(ctx, nodes); err != nil {
			return err
		}
		printDevTable(out, nodes)
		return nil
	})
	err = group.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(out, "stopped")
		return nil
	}
	return err
}

func portsFree(nodes []*devNode) error {
	for _, n := range nodes {
		for _, port := range []int{n.kafka, n.peer, n.gossip, n.admin} {
			l, err := net.Listen("tcp", loopbackAddr(port))
			if err != nil {
				return fmt.Errorf("port %d of node %s: %w; is another vtopd dev running?", port, n.name, err)
			}
			if err := l.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func loopbackAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (n *devNode) args(nodes []*devNode) []string {
	peers := make([]string, len(nodes))
	for i, p := range nodes {
		peers[i] = loopbackAddr(p.peer)
	}
	return []string{
		"--node-id", n.name, "--data-dir", n.dir,
		"--kafka-addr", loopbackAddr(n.kafka), "--peer-addr", loopbackAddr(n.peer),
		"--gossip-addr", loopbackAddr(n.gossip), "--admin-addr", loopbackAddr(n.admin),
		"--join", strings.Join(peers, ","), "--bootstrap-expect", strconv.Itoa(len(nodes)),
		"--allow-drills", "--supervised",
	}
}

// supervise runs the node until ctx ends, starting it again whenever it dies. A usage error is final, and so is a
// first start that begins no process: what the machine does not allow now it will not allow two seconds later.
func (n *devNode) supervise(ctx context.Context, out io.Writer, exe string, nodes []*devNode) error {
	for first := true; ; first = false {
		err := n.runOnce(ctx, exe, n.args(nodes), func(pid int) {
			if !first {
				fmt.Fprintf(out, "node %s started again, pid %d\n", n.name, pid)
			}
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == exitUsage {
			return fmt.Errorf("node %s refused its settings; see %s", n.name, n.logPath())
		}
		if err != nil && exit == nil && n.currentPID() == 0 {
			return fmt.Errorf("node %s cannot be started: %w", n.name, err)
		}
		fmt.Fprintf(out, "node %s (pid %d) ended: %s; starting it again in %s\n", n.name, n.currentPID(), endText(err), devRestartPause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(devRestartPause):
		}
	}
}

// endText says how a process ended.
func endText(err error) string {
	if err == nil {
		return "stopped as asked"
	}
	return err.Error()
}

func (n *devNode) logPath() string { return filepath.Join(n.dir, "vtopd.log") }

func (n *devNode) runOnce(ctx context.Context, exe string, args []string, started func(pid int)) error {
	if err := os.MkdirAll(n.dir, 0o750); err != nil {
		return err
	}
	logFile, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer logFile.Close()
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = childAttributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = devStopLimit
	if err := cmd.Start(); err != nil {
		return err
	}
	n.mu.Lock()
	n.pid = cmd.Process.Pid
	n.mu.Unlock()
	started(cmd.Process.Pid)
	return cmd.Wait()
}

func (n *devNode) currentPID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pid
}

// devReady returns when every node says that it is ready.
func devReady(ctx context.Context, nodes []*devNode) error {
	ctx, cancel := context.WithTimeout(ctx, devReadyLimit)
	defer cancel()
	for _, n := range nodes {
		for !answersReady(ctx, n.admin) {
			select {
			case <-ctx.Done():
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					return fmt.Errorf("node %s was not ready within %s; see %s", n.name, devReadyLimit, n.logPath())
				}
				return context.Cause(ctx)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

func answersReady(ctx context.Context, port int) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+loopbackAddr(port)+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func printDevTable(out io.Writer, nodes []*devNode) {
	w := tabwriter.NewWriter(out, 0, 4, 3, ' ', 0)
	fmt.Fprintln(w, "NODE\tPID\tKAFKA\tADMIN\tPEER\tLOG")
	for _, n := range nodes {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", n.name, n.currentPID(), loopbackAddr(n.kafka), loopbackAddr(n.admin), loopbackAddr(n.peer), n.logPath())
	}
	_ = w.Flush()
	fmt.Fprintf(out, `ready. Try:
  seq 1 1000 | kcat -P -b %[1]s -t numbers
  kcat -C -b %[1]s -t numbers -o beginning -e
  go run ./cmd/vtopctl lease list
  go run ./cmd/vtopctl drill leader-kill
Ctrl-C stops the cluster.
`, loopbackAddr(nodes[0].kafka))
}
