//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/vtop-log/vtop/test/harness"
)

// reassign asks for a range's replicas, by broker, and waits until exactly those are there, in that order, and nothing moves.
func reassign(t *testing.T, c *harness.Cluster, adm *kadm.Client, meanwhile func(), brokers ...int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c.Eventually(30*time.Second, "the assignment to be taken", func() error {
		var req kadm.AlterPartitionAssignmentsReq
		req.Assign("ledger", 0, brokers)
		rs, err := adm.AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = rs["ledger"][0].Err
		}
		return err
	})
	meanwhile()
	began := time.Now()
	c.Eventually(90*time.Second, fmt.Sprintf("replicas %v", brokers), func() error {
		moving, err := adm.ListPartitionReassignments(ctx, kadm.TopicsSet{"ledger": {0: {}}})
		if err != nil {
			return err
		}
		topics, err := adm.ListTopics(ctx, "ledger")
		if err != nil {
			return err
		}
		p := topics["ledger"].Partitions[0]
		if len(moving) > 0 || !slices.Equal(p.Replicas, brokers) || len(p.ISR) != len(brokers) || !slices.Contains(brokers, p.Leader) {
			return fmt.Errorf("replicas %v, in sync %v, leader %d, on their way %+v", p.Replicas, p.ISR, p.Leader, moving["ledger"][0])
		}
		return nil
	})
	t.Logf("%v after %s", brokers, time.Since(began).Round(100*time.Millisecond))
}

// Replicas move, become more and fewer, and change places while an idempotent producer writes; leaders are moved off their
// nodes, and a node dies in the middle. Nothing that was acknowledged is missing at the end, nothing is there twice.
func TestReassign_MoveGrowAndShrinkUnderLoad(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 5, Flags: steady})
	createTopic(t, c, "ledger", 1, 3, "--config", "segment.bytes=1048576")
	adm := admin(t, c)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 4096, InFlight: 32, PerSecond: 500})
	ledger.WaitMore(1500, 60*time.Second)
	nothing := func() {}
	topics, err := adm.ListTopics(context.Background(), "ledger")
	if err != nil {
		t.Fatal(err)
	}
	on := topics["ledger"].Partitions[0].Replicas
	var off []int32
	for id := int32(1); id <= 5; id++ {
		if !slices.Contains(on, id) {
			off = append(off, id)
		}
	}
	reassign(t, c, adm, nothing, on[2], on[0], on[1])   // another order
	reassign(t, c, adm, nothing, off[0], off[1], on[2]) // two of three move, the leader with them
	ledger.WaitMore(200, 30*time.Second)
	reassign(t, c, adm, nothing, off[0], off[1], on[2], on[0], on[1]) // more
	reassign(t, c, adm, nothing, on[1], on[0])                        // fewer, and the leader not among them
	ledger.WaitMore(200, 30*time.Second)
	reassign(t, c, adm, func() { // a holder dies with replicas on their way
		victim, _ := c.Holder("ledger", 0)
		victim.Kill()
		victim.Start()
		victim.WaitReady()
	}, off[0], on[0], on[1])
	ledger.WaitMore(500, 60*time.Second)
	c.WaitInSync("ledger", 60*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
