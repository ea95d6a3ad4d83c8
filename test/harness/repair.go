package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// RepairRun is one `vtopctl repair -o json` that runs beside the test.
type RepairRun struct {
	cluster *Cluster
	args    []string
	cmd     *exec.Cmd
	out     bytes.Buffer
	errOut  bytes.Buffer
	done    chan struct{}
	once    sync.Once
}

// StartRepair starts `vtopctl repair -o json` with the given arguments against the node. What still runs when the test
// ends is killed.
func (n *Node) StartRepair(args ...string) *RepairRun {
	c := n.cluster
	c.T.Helper()
	r := &RepairRun{cluster: c, args: args, done: make(chan struct{})}
	r.cmd = n.CtlCommand(append(append([]string{"repair"}, args...), "-o", "json")...)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.errOut
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		c.T.Fatal(err)
	}
	go func() { _ = r.cmd.Wait(); close(r.done) }()
	c.T.Cleanup(r.Kill)
	return r
}

// Kill ends it with SIGKILL and waits for its end.
func (r *RepairRun) Kill() {
	r.once.Do(func() { _ = r.cmd.Process.Kill() })
	<-r.done
}

// Ended reports whether it has ended.
func (r *RepairRun) Ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Done is closed when it has ended.
func (r *RepairRun) Done() <-chan struct{} { return r.done }

// Code is the exit code once it has ended; -1 if a signal ended it.
func (r *RepairRun) Code() int {
	<-r.done
	return r.cmd.ProcessState.ExitCode()
}

// Text waits for its end and returns all that it printed.
func (r *RepairRun) Text() (stdout, stderr string) {
	<-r.done
	return r.out.String(), r.errOut.String()
}

// Wait waits for its end and returns the job as it was told, what stood on standard error, and the exit code.
func (r *RepairRun) Wait(limit time.Duration) (job adminapi.Repair, stderr string, code int) {
	t := r.cluster.T
	t.Helper()
	if !closed(r.done, patient(limit)) {
		jobs, err := r.cluster.Repairs(false)
		t.Fatalf("vtopctl repair %s has not ended within %s; repairs under way: %+v (%v)", strings.Join(r.args, " "), patient(limit), jobs, err)
	}
	if r.out.Len() > 0 {
		if err := json.Unmarshal(r.out.Bytes(), &job); err != nil {
			t.Fatalf("vtopctl repair %s: %v in %q", strings.Join(r.args, " "), err, r.out.String())
		}
	}
	return job, r.errOut.String(), r.cmd.ProcessState.ExitCode()
}

// Repair runs `vtopctl repair -o json` to its end.
func (n *Node) Repair(limit time.Duration, args ...string) (job adminapi.Repair, stderr string, code int) {
	n.cluster.T.Helper()
	return n.StartRepair(args...).Wait(limit)
}

// Repairs asks the first running node that answers for the repairs under way, or all that are remembered.
func (c *Cluster) Repairs(all bool) ([]adminapi.Repair, error) {
	path := "/v1/repairs"
	if all {
		path += "?all=true"
	}
	var last error
	for _, n := range c.Running() {
		var out []adminapi.Repair
		if last = n.Get(path, &out); last == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("no node listed repairs: %w", last)
}

// ReplicaOn gives the replica of a range on node, as any other node tells it.
func (c *Cluster) ReplicaOn(topic string, index int32, node *Node) (adminapi.Replica, error) {
	var last error
	for _, n := range c.Running() {
		d, err := n.LeaseDetail(topic, index)
		if err != nil {
			last = err
			continue
		}
		for _, r := range d.Replicas {
			if r.Node == node.Name {
				return r, nil
			}
		}
		return adminapi.Replica{}, fmt.Errorf("no replica on %s in %+v", node.Name, d.Replicas)
	}
	return adminapi.Replica{}, fmt.Errorf("no node told the lease of %s/%d: %w", topic, index, last)
}

// LeadAt moves the lease of a range to node and waits until it serves there.
func (c *Cluster) LeadAt(topic string, index int32, node *Node) Lease {
	c.T.Helper()
	var lease Lease
	c.Eventually(60*time.Second, fmt.Sprintf("lease of %s/%d at %s", topic, index, node.Name), func() error {
		holder, l := c.Holder(topic, index)
		if lease = l; holder == node {
			return nil
		}
		_, errOut, code := node.Ctl("lease", "transfer", topic+"/"+strconv.Itoa(int(index)), "--to", node.Name)
		return fmt.Errorf("lease is %+v; lease transfer: exit %d: %s", l, code, errOut)
	})
	return lease
}

// RangeDir is where the node keeps its replica of a range.
func (c *Cluster) RangeDir(topic string, index int32, node *Node) string {
	c.T.Helper()
	id, err := c.TopicID(topic)
	if err != nil {
		c.T.Fatal(err)
	}
	return filepath.Join(node.Dir, "store", "ranges", fmt.Sprintf("%s-%d", id, index))
}

// SealedFiles gives the paths of the segments in dir that have a manifest, in order.
func SealedFiles(dir string) []string {
	manifests, _ := filepath.Glob(filepath.Join(dir, "*.manifest"))
	var out []string
	for _, m := range manifests {
		log := strings.TrimSuffix(m, ".manifest") + ".log"
		if _, err := os.Stat(log); err == nil {
			out = append(out, log)
		}
	}
	slices.Sort(out)
	return out
}

// SegmentBase is the base offset in a segment's name.
func SegmentBase(path string) int64 {
	base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(path), ".log"), 10, 64)
	if err != nil {
		return -1
	}
	return base
}

// CompareSealed holds every sealed segment of a below end against the file of the same name in b, byte by byte, and
// returns how many there were.
func CompareSealed(a, b string, end int64) (int, error) {
	n := 0
	for _, file := range SealedFiles(a) {
		if SegmentBase(file) >= end {
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			return n, err
		}
		got, err := os.ReadFile(filepath.Join(b, filepath.Base(file)))
		if err != nil {
			return n, err
		}
		if !bytes.Equal(want, got) {
			return n, fmt.Errorf("segment %s has %d bytes in %s and %d in %s, not the same", filepath.Base(file), len(want), a, len(got), b)
		}
		n++
	}
	return n, nil
}

// Listing tells names, sizes and modification times of all that is below dir.
func Listing(dir string) (string, error) {
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		fmt.Fprintf(&out, "%s %d %s\n", rel, info.Size(), info.ModTime().Format(time.RFC3339Nano))
		return err
	})
	return out.String(), err
}

// Unlinked counts the files that the node's process holds open although no name leads to them, and their bytes on disk.
func (n *Node) Unlinked() (files int, size int64) {
	names, size := n.UnlinkedFiles()
	return len(names), size
}

// UnlinkedFiles names them as they were named.
func (n *Node) UnlinkedFiles() (names []string, size int64) {
	dir := filepath.Join("/proc", strconv.Itoa(n.PID()), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.HasSuffix(target, " (deleted)") {
			continue
		}
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil {
			names, size = append(names, strings.TrimSuffix(target, " (deleted)")), size+st.Blocks*512
		}
	}
	return names, size
}

// PeakRSS is the highest resident memory of the node's process since ResetPeak, in bytes.
func (n *Node) PeakRSS() int64 {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n.PID()), "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// ResetPeak begins PeakRSS anew.
func (n *Node) ResetPeak() {
	if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(n.PID()), "clear_refs"), []byte("5"), 0); err != nil {
		n.cluster.T.Fatal(err)
	}
}

// CertDir is where the certificates of the node's cluster are, with TLS.
func (n *Node) CertDir() string { return n.cluster.certs }
