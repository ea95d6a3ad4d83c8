//go:build cluster

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/test/harness"
)

// A2, C4: the holder is cut off from the other nodes, in silence, while clients still reach it. Within its lease time
// it stops to acknowledge and to answer as leader; what the others acknowledge meanwhile is never contradicted, and
// after the cut it follows again. Once where it is the Raft leader too, once where it is not.
func TestNetwork_HolderCutOffStopsWithinItsLease(t *testing.T) {
	for _, leader := range []bool{false, true} {
		t.Run(fmt.Sprintf("Raft leader %v", leader), func(t *testing.T) {
			net := harness.NewNetwork(t, 3)
			c := harness.Start(t, harness.Options{
				Nodes: 3, Flags: append([]string{"--allow-plaintext", "--raft-heartbeat", "500ms", "--lease-time", "5s"}, steady...),
				Host: net.Host, Wrap: net.Wrap,
			})
			createTopic(t, c, "ledger", 1, 3)
			ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
			ledger.WaitMore(200, 30*time.Second)
			holder, before := c.HolderBeside("ledger", leader)
			raw := harness.DialRaw(t, holder.Kafka)
			if code := mustProduce(t, raw, 1, harness.NotInLedger); code != 0 {
				t.Fatalf("acks 1 before the cut: code %d", code)
			}
			cut := time.Now()
			net.Isolate(holder.Index)
			waitNotHolder(t, c.Nodes[(holder.Index+1)%3], holder, before.Epoch)
			t.Logf("served elsewhere %s after the cut", time.Since(cut).Round(time.Millisecond))
			untilRefused(t, holder, cut)
			ledger.WaitMore(200, 60*time.Second)
			net.Rejoin(holder.Index)
			c.WaitInSync("ledger", 90*time.Second)
			ledger.WaitMore(200, 60*time.Second)
			c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
		})
	}
}

// untilRefused asks the holder as a client that reaches only it, until it answers neither writes nor questions for the
// end as leader, and holds that it keeps to that.
func untilRefused(t *testing.T, holder *harness.Node, cut time.Time) {
	t.Helper()
	raw := harness.DialRaw(t, holder.Kafka)
	harness.Eventually(t, 30*time.Second, "a refusal from the holder that is cut off", func() error {
		if code := mustProduce(t, raw, 1, harness.NotInLedger); code == 0 {
			return fmt.Errorf("acks=1 is still acknowledged")
		}
		if code := latest(t, raw); code == 0 {
			return fmt.Errorf("the end offset is still answered")
		}
		return nil
	})
	t.Logf("the holder refuses since %s after the cut", time.Since(cut).Round(time.Millisecond))
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		if code := mustProduce(t, raw, 1, harness.NotInLedger); code == 0 {
			t.Fatal("a holder that had stopped acknowledges again while it is cut off")
		}
		if code := latest(t, raw); code == 0 {
			t.Fatal("a holder that had stopped answers for the end again while it is cut off")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// latest asks for the end offset of ledger/0 and returns the code of the answer.
func latest(t *testing.T, raw *harness.Raw) int16 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(5)
	req.ReplicaID = -1
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.CurrentLeaderEpoch, part.Timestamp = -1, -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic, topic.Partitions = "ledger", []kmsg.ListOffsetsRequestTopicPartition{part}
	req.Topics = append(req.Topics, topic)
	resp, err := raw.Ask(req, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	r := resp.(*kmsg.ListOffsetsResponse)
	code := r.Topics[0].Partitions[0].ErrorCode
	if err := kerr.ErrorForCode(code); err != nil && !kerr.IsRetriable(err) {
		t.Fatalf("the end offset is answered with %v, which no client tries again", err)
	}
	return code
}

// A follower is cut off, then the Raft leader that is not the holder: neither costs an acknowledgement, and the
// isolated one comes back by itself.
func TestNetwork_OthersCutOffOneAfterTheOther(t *testing.T) {
	net := harness.NewNetwork(t, 3)
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: append([]string{"--allow-plaintext"}, steady...), Host: net.Host, Wrap: net.Wrap})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
	ledger.WaitMore(200, 30*time.Second)
	for _, raftLeader := range []bool{false, true} {
		holder, _ := c.HolderBeside("ledger", false)
		victim := c.RaftLeader()
		if !raftLeader {
			victim = c.Nodes[3-holder.Index-victim.Index]
		}
		net.Isolate(victim.Index)
		ledger.WaitMore(300, 60*time.Second)
		time.Sleep(5 * time.Second) // longer than --node-timeout
		ledger.WaitMore(300, 60*time.Second)
		net.Rejoin(victim.Index)
		c.WaitInSync("ledger", 60*time.Second)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
