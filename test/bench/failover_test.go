//go:build cluster

package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// BenchmarkFailover kills the holder of a range twenty times, where it is not the Raft leader and where it is, and
// prints the time from kill -9 to the next acknowledged record. The nodes' settings are the shipped ones; the client
// looks for a new leader as often as it may, and in a shorter run as often as it does by default.
func BenchmarkFailover(b *testing.B) {
	for _, c := range []struct {
		name   string
		leader bool
		plain  bool // a client with all its defaults
		kills  int
		aim    time.Duration
	}{
		{"holder is not the Raft leader", false, false, 20, 500 * time.Millisecond},
		{"holder is the Raft leader", true, false, 20, 1500 * time.Millisecond},
		{"holder is not the Raft leader, client with its defaults", false, true, 10, 500 * time.Millisecond},
		{"holder is the Raft leader, client with its defaults", true, true, 10, 1500 * time.Millisecond},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				times := failovers(b, c.leader, c.plain, c.kills)
				slices.Sort(times)
				median := times[len(times)/2]
				b.ReportMetric(median.Seconds(), "median-s")
				b.ReportMetric(times[len(times)*9/10].Seconds(), "p90-s")
				b.ReportMetric(times[len(times)-1].Seconds(), "max-s")
				fmt.Printf("failover, %s: %d kills, min %s median %s p90 %s max %s (aim: median under %s)\n", c.name, len(times),
					ms(times[0]), ms(median), ms(times[len(times)*9/10]), ms(times[len(times)-1]), c.aim)
			}
		})
	}
}

func ms(d time.Duration) string { return d.Round(time.Millisecond).String() }

func failovers(b *testing.B, onLeader, plain bool, kills int) []time.Duration {
	c := harness.Start(b, harness.Options{Nodes: 3})
	harness.Eventually(b, 20*time.Second, "topic", func() error {
		if _, errOut, code := c.Nodes[0].Ctl("topic", "create", "ledger", "--ranges", "1", "--replicas", "3"); code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut)
		}
		return nil
	})
	ledger := harness.StartLedger(b, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 1024, InFlight: 8, Plain: plain})
	ledger.WaitMore(100, 30*time.Second)
	var times []time.Duration
	for range kills {
		victim, before := c.HolderBeside("ledger", onLeader)
		ledger.WaitMore(50, 30*time.Second)
		killed := time.Now()
		victim.Kill()
		ledger.WaitMore(50, 60*time.Second)
		_, after := c.Holder("ledger", 0)
		times = append(times, firstUnder(b, c, ledger, before.Epoch, after.Epoch).Sub(killed))
		victim.Start()
		victim.WaitReady()
		c.WaitInSync("ledger", 60*time.Second)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
	return times
}

// firstUnder gives the time of the first acknowledgement of a record of a later epoch than old: one that was on its
// way when the holder died doesn't count.
func firstUnder(b *testing.B, c *harness.Cluster, ledger *harness.Ledger, old, now int32) time.Time {
	b.Helper()
	if now <= old {
		b.Fatalf("epoch %d after epoch %d", now, old)
	}
	detail, err := c.Running()[0].LeaseDetail("ledger", 0)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range detail.Epochs {
		if e.Epoch > old {
			for _, a := range ledger.Acks() {
				if a.Offset >= e.Start {
					return a.At
				}
			}
		}
	}
	b.Fatalf("no record was acknowledged under an epoch after %d: %+v", old, detail.Epochs)
	return time.Time{}
}
