//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// consumer is a member of group "billing" of the consumer protocol that reads topic "orders".
func consumer(t *testing.T, c *harness.Cluster) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(harness.ClientOptions(c.Bootstrap()), kgo.ConsumerGroup("billing"), kgo.ServerSideBalancer(), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// readAll polls the members until they have read n records together, and commits.
func readAll(t *testing.T, n int, members ...*kgo.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for read := 0; read < n; {
		for _, cl := range members {
			one, stop := context.WithTimeout(ctx, 200*time.Millisecond)
			read += cl.PollFetches(one).NumRecords()
			stop()
		}
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records were read", read, n)
		}
	}
	for _, cl := range members {
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// described waits until a node describes the group so that ok says yes.
func described(t *testing.T, c *harness.Cluster, n *harness.Node, what string, ok func(*adminapi.GroupDetail) bool) (g adminapi.GroupDetail) {
	t.Helper()
	c.Eventually(60*time.Second, n.Name+" describes "+what, func() error {
		out, errOut, code := n.Ctl("group", "describe", "billing", "-o", "json")
		if code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut)
		}
		g = adminapi.GroupDetail{}
		if err := json.Unmarshal([]byte(out), &g); err != nil {
			return err
		}
		if !ok(&g) {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
	return g
}

// TestConsumerGroup_Operators: what vtopctl says of a group of the consumer protocol is the same at every node, and what it does goes to
// the coordinator, whichever node is asked.
func TestConsumerGroup_Operators(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "orders", 4, 3)
	producer, err := kgo.NewClient(append(harness.ClientOptions(c.Bootstrap()), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	put := func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		for range n {
			if err := producer.ProduceSync(ctx, kgo.StringRecord("order")).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	one, two := consumer(t, c), consumer(t, c)
	described(t, c, c.Nodes[0], "two members with two ranges each", func(g *adminapi.GroupDetail) bool {
		return g.State == "Stable" && len(g.MembersDetail) == 2 && len(g.MembersDetail[0].Assigned) == 2 && len(g.MembersDetail[1].Assigned) == 2
	})
	put(40) // not earlier: what moves before it is committed is read twice, and would be counted twice
	readAll(t, 40, one, two)
	coordinator := ""
	for _, n := range c.Nodes {
		g := described(t, c, n, "two members at the end", func(g *adminapi.GroupDetail) bool {
			behind := int64(0)
			for _, o := range g.CommittedDetail {
				behind += o.Lag
			}
			return g.State == "Stable" && len(g.CommittedDetail) == 4 && behind == 0
		})
		if coordinator = g.Coordinator; g.Kind != "consumer" || g.Protocol != "uniform" || coordinator == "" {
			t.Errorf("%s describes %+v", n.Name, g)
		}
		var listed []adminapi.Group
		if n.CtlJSON(&listed, "group", "list"); len(listed) != 1 || listed[0] != g.Group {
			t.Errorf("%s lists %+v, and describes %+v", n.Name, listed, g.Group)
		}
		// Case: a group with members is neither deleted nor moved.
		for _, args := range [][]string{{"group", "delete", "billing"}, {"group", "offsets", "reset", "billing", "orders", "--to", "earliest"}} {
			if _, errOut, code := n.Ctl(args...); code != 3 || !strings.Contains(errOut, "stop its members") {
				t.Errorf("%s: vtopctl %v: exit %d: %s", n.Name, args, code, errOut)
			}
		}
	}
	one.Close()
	two.Close()
	other := c.Nodes[0]
	if other.Name == coordinator {
		other = c.Nodes[1]
	}
	described(t, c, other, "no members", func(g *adminapi.GroupDetail) bool { return g.State == "Empty" && g.Members == 0 && g.Offsets == 4 })

	// Case: by way of another node: a dry run changes nothing, the other does, and the next member reads from there.
	var resets []adminapi.OffsetReset
	other.CtlJSON(&resets, "group", "offsets", "reset", "billing", "orders/2", "--to", "earliest", "--dry-run")
	if len(resets) != 1 || resets[0].Before == 0 || resets[0].After != 0 {
		t.Fatalf("dry run: %+v", resets)
	}
	read := resets[0].Before
	described(t, c, other, "the offset as it was", func(g *adminapi.GroupDetail) bool { return g.CommittedDetail[2].Offset == read })
	other.CtlJSON(&resets, "group", "offsets", "reset", "billing", "orders/2", "--to", "earliest")
	described(t, c, other, "the offset reset", func(g *adminapi.GroupDetail) bool {
		return g.CommittedDetail[2].Offset == 0 && g.CommittedDetail[2].Lag == read
	})
	again := consumer(t, c)
	readAll(t, int(read), again)
	described(t, c, other, "what was read again", func(g *adminapi.GroupDetail) bool { return g.CommittedDetail[2].Lag == 0 })
	again.Close()

	resetByTime(t, c, other, "billing")

	// Case: deleted by way of another node, it is gone everywhere.
	described(t, c, other, "no members", func(g *adminapi.GroupDetail) bool { return g.Members == 0 })
	if _, errOut, code := other.Ctl("group", "delete", "billing"); code != 0 {
		t.Fatalf("delete: exit %d: %s", code, errOut)
	}
	for _, n := range c.Nodes {
		c.Eventually(10*time.Second, n.Name+" forgets the group", func() error {
			if _, errOut, code := n.Ctl("group", "describe", "billing"); code != 1 {
				return fmt.Errorf("exit %d: %s", code, errOut)
			}
			return nil
		})
	}
}

// resetByTime: each range goes to its first record that is not older, whichever node leads it, and to its end where there is none.
func resetByTime(t *testing.T, c *harness.Cluster, asked *harness.Node, group string) {
	t.Helper()
	createTopic(t, c, "dated", 3, 3)
	cl, err := kgo.NewClient(append(harness.ClientOptions(c.Bootstrap()), kgo.DefaultProduceTopic("dated"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	began := time.Date(2026, 2, 14, 8, 0, 0, 0, time.UTC)
	for i := range 10 { // one each minute; range 2 ends after the fifth
		for r := range int32(3) {
			rec := &kgo.Record{Partition: r, Timestamp: began.Add(time.Duration(i) * time.Minute), Value: []byte("dated")}
			if r == 2 && i >= 5 {
				continue
			}
			if err := cl.ProduceSync(ctx, rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	described(t, c, asked, "no members", func(g *adminapi.GroupDetail) bool { return g.Members == 0 })
	for _, to := range []struct {
		to    string
		after [3]int64
	}{
		{"2026-02-14T08:00:00Z", [3]int64{0, 0, 0}},
		{"2026-02-14T10:03:30+02:00", [3]int64{4, 4, 4}},
		{"2026-02-14T08:07:00Z", [3]int64{7, 7, 5}},
		{"-1s", [3]int64{10, 10, 5}},
		{"1970-01-01T00:00:00Z", [3]int64{0, 0, 0}},
	} {
		var resets []adminapi.OffsetReset
		asked.CtlJSON(&resets, "group", "offsets", "reset", group, "dated", "--to", to.to)
		for r, want := range to.after {
			if len(resets) != 3 || resets[r].Range != int32(r) || resets[r].After != want {
				t.Fatalf("--to %s: %+v, want %v", to.to, resets, to.after)
			}
		}
		described(t, c, asked, "the offsets of "+to.to, func(g *adminapi.GroupDetail) bool {
			at := map[int32]int64{}
			for _, o := range g.CommittedDetail {
				if o.Topic == "dated" {
					at[o.Range] = o.Offset
				}
			}
			return maps.Equal(at, map[int32]int64{0: to.after[0], 1: to.after[1], 2: to.after[2]})
		})
	}
}
