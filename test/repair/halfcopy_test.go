//go:build cluster

package repair

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// G3, I10, I11: a range has two replicas. One is dead and is being replaced; when half of the new copy is there, the leader dies,
// too. Nobody leads then, least of all the half copy, though its node lives, is started anew and is asked to; nothing is
// recovered from it. When the two are back (of two voters both have to promote), the same repair goes on to its end.
func TestHalf_CopyNeverLeadsThoughNobodyElseIsLeft(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 5, Flags: base})
	createTopic(t, c, "ledger", 1, 2, smallSegments...)
	acks := fill(t, c, 1, 6*mib, 4096, 1)
	c.WaitCaughtUp("ledger", 30*time.Second)
	has, dest := replicasOf(t, c, 0), without(t, c, 0)
	leader, dead := has[0], has[1]
	sealed(t, c, 0, leader, 4)
	dead.Kill()
	admin := running(t, c, leader, dest)
	if _, errOut, code := admin.Ctl("repair", "ledger/0", "--node", dest.Name, "--replace", dead.Name, "--max-rate", "1MiB/s", "--no-wait"); code != 0 {
		t.Fatalf("repair: exit %d: %s", code, errOut)
	}
	waitStep(t, c, 30*time.Second, transferring(dest))
	leader.Kill()
	nobodyLeads(t, c, admin, dest)
	dest.Kill() // with half a copy on its disk
	dest.Start()
	dest.WaitReady()
	waitAlive(t, c, 3)
	nobodyLeads(t, c, admin, dest)
	raw := harness.DialRaw(t, dest.Kafka)
	if code, _ := produceRaw(t, raw, harness.ProduceRequest("ledger", 0, 1, harness.NotInLedger)); code == 0 {
		t.Error("the half copy took a record")
	}
	for _, n := range has {
		n.Start()
		n.WaitReady()
	}
	job := waitStep(t, c, 60*time.Second, func(j adminapi.Repair) bool { return j.Destination == dest.Name && j.Outcome != "" })
	mustBeWhole(t, job, "", 0)
	c.LeadAt("ledger", 0, dest)
	c.VerifyLedger("ledger", append(acks, fill(t, c, 1, mib/4, 4096, after(acks))...))
}

// nobodyLeads waits until the cluster says that the range has no leader, and holds that the half copy on dest is refused whatever is
// asked of it.
func nobodyLeads(t *testing.T, c *harness.Cluster, admin, dest *harness.Node) {
	t.Helper()
	c.Eventually(30*time.Second, "a range that nobody leads", func() error {
		d, err := admin.LeaseDetail("ledger", 0)
		if err != nil {
			return err
		}
		if d.Holder == dest.Name {
			t.Fatalf("I10: the half copy leads: %+v", d)
		}
		if d.State == "serving" {
			return fmt.Errorf("lease %+v", d.Lease)
		}
		return nil
	})
	for what, args := range map[string][]string{
		"a transfer of the lease": {"lease", "transfer", "ledger/0", "--to", dest.Name},
		"a recovery":              {"range", "recover", "ledger/0", "--from", dest.Name, "--accept-data-loss", "--confirm", "ledger/0"},
	} {
		out, errOut, code := admin.Ctl(args...)
		if code == 0 || strings.TrimSpace(errOut) == "" {
			t.Errorf("%s to the half copy: exit %d: %s%s", what, code, out, errOut)
		}
		t.Logf("%s: exit %d: %s", what, code, strings.TrimSpace(errOut))
	}
	if d, err := admin.LeaseDetail("ledger", 0); err != nil || d.Holder == dest.Name {
		t.Errorf("I10: the lease is %+v (%v)", d, err)
	}
}
