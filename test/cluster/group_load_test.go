//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/test/harness"
)

// TestGroup_ThousandConsumers: what a thousand consumers commit every five seconds is few entries of the metadata log, and moves no lease.
func TestGroup_ThousandConsumers(t *testing.T) {
	const consumers, rounds = 1000, 4
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "work", 6, 3)
	before, err := c.Leases("work")
	if err != nil {
		t.Fatal(err)
	}
	var clients []*kgo.Client
	for range 10 {
		cl, err := kgo.NewClient(harness.ClientOptions(c.Bootstrap())...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		clients = append(clients, cl)
	}
	commit := func(i int, at int64) error {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.Generation = fmt.Sprint("consumer-", i), -1
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic = "work"
		for p := range int32(6) {
			part := kmsg.NewOffsetCommitRequestTopicPartition()
			part.Partition, part.Offset, part.LeaderEpoch = p, at, -1
			topic.Partitions = append(topic.Partitions, part)
		}
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(context.Background(), clients[i%len(clients)])
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	entriesBefore := sumOf(t, c, "vtop_group_entries_total")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var slowest time.Duration
	for i := range consumers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			time.Sleep(time.Duration(i) * 5 * time.Second / consumers) // spread, as consumers are
			for round := range rounds {
				start := time.Now()
				if err := commit(i, int64(round)); err != nil {
					t.Errorf("commit of consumer %d: %v", i, err)
				}
				took := time.Since(start)
				mu.Lock()
				slowest = max(slowest, took)
				mu.Unlock()
				time.Sleep(5*time.Second - took)
			}
		}()
	}
	wg.Wait()
	entries := sumOf(t, c, "vtop_group_entries_total") - entriesBefore
	t.Logf("%d commits in %.0f entries; the slowest took %s", consumers*rounds, entries, slowest)
	if entries > consumers*rounds/2 {
		t.Errorf("%d commits in %.0f entries: they do not gather", consumers*rounds, entries)
	}
	after, err := c.Leases("work")
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		if after[i].Epoch != before[i].Epoch {
			t.Errorf("lease of work/%d moved from epoch %d to %d", i, before[i].Epoch, after[i].Epoch)
		}
	}
}

func sumOf(t *testing.T, c *harness.Cluster, series string) (sum float64) {
	t.Helper()
	for _, n := range c.Nodes {
		v, err := n.Metric(series)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}
