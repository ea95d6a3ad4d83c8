//go:build cluster

package repair

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

const mib = 1 << 20

// base are flags of every node here.
var base = []string{"--log-level", "debug"}

// smallSegments is the topic config under which much is sealed soon.
var smallSegments = []string{"--config", "segment.bytes=1048576"}

func createTopic(t testing.TB, c *harness.Cluster, name string, ranges, replicas int, config ...string) {
	t.Helper()
	args := append([]string{"topic", "create", name, "--ranges", fmt.Sprint(ranges), "--replicas", fmt.Sprint(replicas)}, config...)
	c.Eventually(20*time.Second, "topic "+name, func() error {
		if _, errOut, code := c.Running()[0].Ctl(args...); code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut) // the first second of a cluster: not all nodes are known alive
		}
		return nil
	})
	for i := range ranges {
		c.Holder(name, int32(i))
	}
}

// withSpare starts three nodes, a topic of three replicas on them, and then a spare node.
func withSpare(t testing.TB, opt harness.Options, ranges int, config ...string) (c *harness.Cluster, spare *harness.Node) {
	t.Helper()
	opt.Nodes = 3
	opt.Flags = append(opt.Flags, base...)
	c = harness.Start(t, opt)
	createTopic(t, c, "ledger", ranges, 3, config...)
	spare = c.AddNode()
	spare.Start()
	spare.WaitReady()
	waitAlive(t, c, 4)
	return c, spare
}

// waitAlive waits until so many nodes are known to be alive.
func waitAlive(t testing.TB, c *harness.Cluster, want int) {
	t.Helper()
	c.Eventually(30*time.Second, fmt.Sprintf("%d nodes alive", want), func() error {
		nodes, err := c.NodeLines()
		if err != nil {
			return err
		}
		alive := 0
		for _, n := range nodes {
			if n.Alive {
				alive++
			}
		}
		if alive < want {
			return fmt.Errorf("%d alive: %+v", alive, nodes)
		}
		return nil
	})
}

// fill writes so many bytes in records of the given size as fast as it goes, and returns what was acknowledged.
func fill(t testing.TB, c *harness.Cluster, ranges int32, bytes, size int, first uint64) []harness.Ack {
	t.Helper()
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: ranges, Size: size, InFlight: 256, PerSecond: harness.Unbounded, First: first})
	ledger.WaitMore(bytes/size, 120*time.Second)
	return ledger.Stop(60 * time.Second)
}

// after is an id above all of acks.
func after(acks []harness.Ack) uint64 {
	var last uint64
	for _, a := range acks {
		last = max(last, a.ID)
	}
	return last + 1
}

// replicasOf are the nodes with a replica of a range of the ledger, the holder first.
func replicasOf(t testing.TB, c *harness.Cluster, index int32) []*harness.Node {
	t.Helper()
	return replicaNodes(t, c, "ledger", index)
}

func replicaNodes(t testing.TB, c *harness.Cluster, topic string, index int32) []*harness.Node {
	t.Helper()
	holder, lease := c.Holder(topic, index)
	out := []*harness.Node{holder}
	for _, r := range lease.Replicas {
		if r.Node != holder.Name {
			out = append(out, c.Node(r.Node))
		}
	}
	return out
}

// without is a node that runs and has no replica of a range of the ledger.
func without(t testing.TB, c *harness.Cluster, index int32) *harness.Node {
	t.Helper()
	return withoutReplica(t, c, "ledger", index)
}

func withoutReplica(t testing.TB, c *harness.Cluster, topic string, index int32) *harness.Node {
	t.Helper()
	return running(t, c, replicaNodes(t, c, topic, index)...)
}

func names(nodes []*harness.Node) string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return strings.Join(out, ",")
}

func rangeName(index int32) string { return "ledger/" + strconv.Itoa(int(index)) }

// running is a node that runs and is none of the excepted ones.
func running(t testing.TB, c *harness.Cluster, except ...*harness.Node) *harness.Node {
	t.Helper()
next:
	for _, n := range c.Running() {
		for _, e := range except {
			if n == e {
				continue next
			}
		}
		return n
	}
	t.Fatalf("no node runs beside %s", names(except))
	return nil
}

// isWhole returns nil if a repair ended as it should: exit 0, voting, at the floor, what was sealed included (I12).
func isWhole(job adminapi.Repair, stderr string, code int) error {
	switch {
	case code != 0:
		return fmt.Errorf("exit %d: %s; %+v", code, stderr, job)
	case job.Outcome != adminapi.OutcomeWhole || job.Step != adminapi.StepDone || !job.Voter || job.Gap != 0:
		return fmt.Errorf("it ended as %+v", job)
	case job.Floor < 0 || job.LogEnd < job.Floor || job.LogEnd < job.SealedEnd:
		return fmt.Errorf("read back: log end %d, floor %d, sealed end %d", job.LogEnd, job.Floor, job.SealedEnd)
	}
	return nil
}

// mustBeWhole fails the test unless the repair ended as it should.
func mustBeWhole(t testing.TB, job adminapi.Repair, stderr string, code int) {
	t.Helper()
	if err := isWhole(job, stderr, code); err != nil {
		t.Fatal(err)
	}
	t.Logf("repair %d of %s on %s from %v: sealed end %d (%d records sealed for it), %d segments, %d bytes, log end %d, floor %d, %s",
		job.ID, job.Range, job.Destination, job.Sources, job.SealedEnd, job.RecordsSealed, job.Segments, job.Bytes, job.LogEnd, job.Floor,
		job.UpdatedAt.Sub(job.CreatedAt).Round(time.Millisecond))
}

// waitStep waits until a repair is at one of the steps, and returns it. It fails if the repair ends before.
func waitStep(t testing.TB, c *harness.Cluster, limit time.Duration, what func(adminapi.Repair) bool) adminapi.Repair {
	t.Helper()
	var found adminapi.Repair
	c.Eventually(limit, "a repair in the state that the drill waits for", func() error {
		jobs, err := c.Repairs(true)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if what(j) {
				found = j
				return nil
			}
		}
		return fmt.Errorf("repairs are %+v", jobs)
	})
	return found
}

// transferring reports whether a repair to node has moved bytes and has more to move.
func transferring(node *harness.Node) func(adminapi.Repair) bool {
	return func(j adminapi.Repair) bool {
		return j.Destination == node.Name && j.Step == adminapi.StepTransferring && j.BytesDone > 0 && j.BytesDone < j.BytesTotal
	}
}

// sealed waits until the node's replica has so many sealed segments, and returns their paths.
func sealed(t testing.TB, c *harness.Cluster, index int32, n *harness.Node, want int) []string {
	t.Helper()
	dir := c.RangeDir("ledger", index, n)
	var files []string
	c.Eventually(30*time.Second, fmt.Sprintf("%d sealed segments on %s", want, n.Name), func() error {
		if files = harness.SealedFiles(dir); len(files) < want {
			return fmt.Errorf("%d in %s", len(files), dir)
		}
		return nil
	})
	return files
}

// flip changes one bit in the middle of a file.
func flip(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], info.Size()/2)
	b[0] ^= 0x10
	if err == nil {
		_, err = f.WriteAt(b[:], info.Size()/2)
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// pins asks for what the nodes hold open for transfers.
func pins(c *harness.Cluster) ([]adminapi.Pin, error) {
	var out []adminapi.Pin
	return out, c.Running()[0].Get("/v1/pins", &out)
}

// alter sets a config of the topic.
func alter(t testing.TB, c *harness.Cluster, name, value string) {
	t.Helper()
	client, err := kgo.NewClient(harness.ClientOptions(c.Bootstrap())...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	answers, err := kadm.NewClient(client).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, "ledger")
	if err == nil {
		_, err = answers.On("ledger", func(a *kadm.AlterConfigsResponse) error { return a.Err })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// allEqual returns nil if every node told the same.
func allEqual(answers []adminapi.Repair) error {
	first, err := json.Marshal(answers[0])
	if err != nil {
		return err
	}
	for _, a := range answers[1:] {
		other, err := json.Marshal(a)
		if err != nil {
			return err
		}
		if !bytes.Equal(first, other) {
			return fmt.Errorf("one node tells %s, another %s", first, other)
		}
	}
	return nil
}

func decode(text string, v any) error { return json.Unmarshal([]byte(text), v) }
