//go:build cluster

package repair

import (
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// H6, I1: of five nodes under load one is being drained and removed, and while its replicas move, the Raft leader is cut off and
// two others are killed: nobody has a majority. The removal is refused or waits; with the nodes back it goes through, and nothing that
// was acknowledged is missing.
func TestRemoval_WhileAMajorityIsGone(t *testing.T) {
	const topicRanges = 3
	net := harness.NewNetwork(t, 5)
	c := harness.Start(t, harness.Options{Nodes: 5, Flags: append([]string{"--allow-plaintext"}, base...), Host: net.Host, Wrap: net.Wrap})
	createTopic(t, c, "ledger", topicRanges, 3, smallSegments...)
	acks := fill(t, c, topicRanges, 6*mib, 4096, 1)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: topicRanges, Size: 1024, InFlight: 32, PerSecond: 1000, First: after(acks)})
	cutOff := c.RaftLeader()
	leaving := replicasOf(t, c, 0)[1]
	if leaving == cutOff {
		leaving = replicasOf(t, c, 0)[2]
	}
	var killed []*harness.Node
	var left *harness.Node
	for _, n := range c.Nodes {
		switch {
		case n == cutOff || n == leaving:
		case len(killed) < 2:
			killed = append(killed, n)
		default:
			left = n
		}
	}
	if _, errOut, code := left.Ctl("node", "drain", leaving.Name, "--no-wait"); code != 0 {
		t.Fatalf("node drain --no-wait: exit %d: %s", code, errOut)
	}
	job := waitStep(t, c, 30*time.Second, func(j adminapi.Repair) bool { return j.Replaces == leaving.Name && j.Step != adminapi.StepQueued })
	net.Isolate(cutOff.Index)
	for _, n := range killed {
		n.Kill()
	}
	t.Logf("drain of %s: repair %d was %s when %s was cut off, and %s killed", leaving.Name, job.ID, job.Step, cutOff.Name, names(killed))
	for _, n := range []*harness.Node{left, leaving} {
		if out, errOut, code := n.Ctl("node", "remove", leaving.Name); code == 0 {
			t.Errorf("%s removed %s without a majority: %s%s", n.Name, leaving.Name, out, errOut)
		}
	}
	net.Rejoin(cutOff.Index)
	for _, n := range killed {
		n.Start()
	}
	for _, n := range killed {
		n.WaitReady()
	}
	ledger.WaitMore(500, 60*time.Second)
	var d adminapi.DrainResult
	left.CtlJSON(&d, "node", "drain", leaving.Name)
	if !d.Done || d.LeasesLeft != 0 || d.ReplicasLeft != 0 {
		t.Errorf("drain ended with %+v", d)
	}
	leaving.Stop(15 * time.Second)
	if out, errOut, code := left.Ctl("node", "remove", leaving.Name); code != 0 {
		t.Errorf("node remove: exit %d: %s%s", code, out, errOut)
	}
	c.Eventually(30*time.Second, leaving.Name+" out of the list", func() error { return notListed(c, leaving) })
	ledger.WaitMore(500, 60*time.Second)
	c.VerifyLedger("ledger", append(acks, ledger.Stop(60*time.Second)...))
}
