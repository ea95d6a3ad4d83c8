//go:build cluster

package repair

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// I10: the directory of a replica is removed while its node lives and clients write, once a follower's and once the leader's. The
// node finds it without a restart, the replica is lost and comes back under a new id, and nothing that was acknowledged is missing.
func TestGone_DirectoryRemovedUnderALiveNode(t *testing.T) {
	for i, who := range []string{"leader", "follower"} {
		t.Run(who, func(t *testing.T) {
			c := harness.Start(t, harness.Options{Nodes: 3, Flags: base})
			createTopic(t, c, "ledger", 1, 3, smallSegments...)
			ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 4096, InFlight: 32, PerSecond: 500})
			ledger.WaitMore(1500, 60*time.Second)
			victim := replicasOf(t, c, 0)[i]
			sealed(t, c, 0, victim, 2)
			was, err := c.ReplicaOn("ledger", 0, victim)
			if err != nil {
				t.Fatal(err)
			}
			// The node makes files there meanwhile, between two looks at the directory.
			c.Eventually(30*time.Second, "the directory to be gone", func() error { return os.RemoveAll(c.RangeDir("ledger", 0, victim)) })
			began := time.Now()
			c.Eventually(90*time.Second, "a whole replica under a new id on "+victim.Name, func() error {
				now, err := c.ReplicaOn("ledger", 0, victim)
				if err != nil || now.ReplicaID == was.ReplicaID || now.Role != "voter" || now.State != "following" && now.State != "leading" {
					return fmt.Errorf("%+v, %v", now, err)
				}
				return nil
			})
			t.Logf("whole again after %s", time.Since(began))
			ledger.WaitMore(500, 60*time.Second)
			acks := ledger.Stop(60 * time.Second)
			c.WaitCaughtUp("ledger", 30*time.Second)
			c.VerifyLedger("ledger", acks)
		})
	}
}
