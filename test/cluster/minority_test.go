//go:build cluster

package cluster

import (
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// A2: of five nodes, the Raft leader and the holder are cut off together, so that the holder still hears from the leader that it
// knows. It stops within its lease all the same, since that leader has no majority to renew leases with; the three others go on.
func TestNetwork_HolderAndRaftLeaderCutOffTogether(t *testing.T) {
	net := harness.NewNetwork(t, 5)
	c := harness.Start(t, harness.Options{
		Nodes: 5, Flags: append([]string{"--allow-plaintext", "--raft-heartbeat", "500ms", "--lease-time", "5s"}, steady...),
		Host: net.Host, Wrap: net.Wrap,
	})
	createTopic(t, c, "ledger", 1, 5)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
	ledger.WaitMore(200, 30*time.Second)
	holder, before := c.HolderBeside("ledger", false)
	minority := []*harness.Node{holder, c.RaftLeader()}
	var other *harness.Node
	for _, n := range c.Nodes {
		if n != minority[0] && n != minority[1] {
			other = n
		}
	}
	raw := harness.DialRaw(t, holder.Kafka)
	if code := mustProduce(t, raw, 1, harness.NotInLedger); code != 0 {
		t.Fatalf("acks 1 before the cut: code %d", code)
	}
	split := func(change func(a, b int)) {
		for _, in := range minority {
			for _, n := range c.Nodes {
				if n != minority[0] && n != minority[1] {
					change(in.Index, n.Index)
				}
			}
		}
	}
	cut := time.Now()
	split(net.Cut)
	waitNotHolder(t, other, holder, before.Epoch)
	t.Logf("served elsewhere %s after the cut", time.Since(cut).Round(time.Millisecond))
	untilRefused(t, holder, cut)
	ledger.WaitMore(200, 60*time.Second)
	split(net.Heal)
	c.WaitInSync("ledger", 90*time.Second)
	ledger.WaitMore(200, 60*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
