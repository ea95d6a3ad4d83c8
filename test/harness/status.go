package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// Status asks the first running node that answers, other than the excepted ones.
func (c *Cluster) Status(except ...*Node) (*adminapi.Status, error) {
	var errs []error
next:
	for _, n := range c.Running() {
		for _, e := range except {
			if n == e {
				continue next
			}
		}
		out, err := n.Status()
		if err == nil {
			return out, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no node told its status: %w", errors.Join(errs...))
}

// Status asks this node.
func (n *Node) Status() (*adminapi.Status, error) {
	out := new(adminapi.Status)
	return out, n.Get("/v1/status", out)
}

// LeaseDetail is what `vtopctl lease show` prints.
func (n *Node) LeaseDetail(topic string, index int32) (*adminapi.LeaseDetail, error) {
	out := new(adminapi.LeaseDetail)
	return out, n.Get(fmt.Sprintf("/v1/leases/%s/%d", topic, index), out)
}

// Metric reads one series of the metrics page, by its full name with labels.
func (n *Node) Metric(series string) (float64, error) {
	resp, err := n.client().Get(n.url("/metrics"))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for sc := bufio.NewScanner(io.LimitReader(resp.Body, 16<<20)); sc.Scan(); {
		if value, ok := strings.CutPrefix(sc.Text(), series+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("no series %s on %s", series, n.Admin)
}

// RaftTerm is the highest Raft term that any running node knows.
func (c *Cluster) RaftTerm() uint64 {
	c.T.Helper()
	var term float64
	for _, n := range c.Running() {
		v, err := n.Metric(`vtop_raft{name="term"}`)
		if err != nil {
			c.T.Fatal(err)
		}
		term = max(term, v)
	}
	return uint64(term)
}

// RSS is the resident memory of the node's process in bytes.
func (n *Node) RSS() int64 {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n.PID()), "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}
