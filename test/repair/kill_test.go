//go:build cluster

package repair

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// kills is how many moments of a repair each kind of death gets; VTOP_KILLS says another number, VTOP_SEED another seed.
func kills(t *testing.T) (n int, seed uint64) {
	t.Helper()
	n, seed = 10, 20_240_601
	for name, set := range map[string]func(uint64){"VTOP_KILLS": func(v uint64) { n = int(v) }, "VTOP_SEED": func(v uint64) { seed = v }} {
		if text := os.Getenv(name); text != "" {
			v, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				t.Fatalf("%s=%s: %v", name, text, err)
			}
			set(v)
		}
	}
	return n, seed
}

// steps are those at which somebody dies; at "" it is after a while, whatever the step.
var steps = []string{"", adminapi.StepSealing, adminapi.StepTransferring, adminapi.StepAdopting, adminapi.StepCatchingUp, adminapi.StepPromoting}

// transferTime is about how long the transfers here take.
const transferTime = 800 * time.Millisecond

// G2, I11: vtopctl, the destination, a source, the leader and the Raft leader are killed at ten seeded moments of a
// repair each, under load. Each repair ends whole; nobody removes a file.
func TestKill_RepairEndsWhole(t *testing.T) {
	n, seed := kills(t)
	c, _ := withSpare(t, harness.Options{}, 1, smallSegments...)
	acks := fill(t, c, 1, 12*mib, 4096, 1)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 256, InFlight: 16, PerSecond: 500, First: after(acks)})
	for _, who := range []string{"vtopctl", "destination", "source", "leader", "Raft leader"} {
		t.Run(who, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(len(who))))
			for moment := range n {
				k := killing{t: t, c: c, who: who, step: steps[rng.IntN(len(steps))], pause: time.Duration(rng.Int64N(int64(transferTime)))}
				if k.step != "" {
					k.pause = time.Duration(rng.Int64N(int64(30 * time.Millisecond)))
				}
				k.run(moment)
				ledger.WaitMore(20, 60*time.Second)
			}
		})
	}
	acks = append(acks, ledger.Stop(60*time.Second)...)
	c.VerifyLedger("ledger", acks)
	noPins(t, c, 3*time.Minute)
}

// killing is one death during one repair.
type killing struct {
	t     *testing.T
	c     *harness.Cluster
	who   string
	step  string
	pause time.Duration
}

func (k killing) run(moment int) {
	t, c := k.t, k.c
	t.Helper()
	c.WaitInSync("ledger", 60*time.Second)
	dest, has := without(t, c, 0), replicasOf(t, c, 0)
	leader, source, replaced := has[0], has[1], has[2]
	args := []string{"ledger/0", "--node", dest.Name, "--replace", replaced.Name, "--max-rate", "16MiB/s", "--seal-tail"}
	if k.who == "source" {
		args = append(args, "--source", source.Name)
	}
	run := replaced.StartRepair(args...)
	began := time.Now()
	at := k.await(dest, run)
	var victim *harness.Node
	switch k.who {
	case "vtopctl":
		run.Kill()
	case "destination":
		victim = dest
	case "source":
		victim = source
	case "leader":
		victim = leader
	case "Raft leader":
		victim = c.RaftLeader()
	}
	if victim != nil {
		victim.Kill()
		victim.Start()
	}
	died := time.Since(began)
	job, stderr, code := run.Wait(120 * time.Second)
	if k.who == "vtopctl" {
		if job = k.findJob(dest); !job.Ended() {
			job, stderr, code = running(t, c).Repair(120*time.Second, "watch", strconv.FormatUint(job.ID, 10))
		} else {
			code = 0
		}
	}
	if err := isWhole(job, stderr, code); err != nil {
		t.Fatalf("moment %d (%s of %s killed at %s, %s after the start): %v", moment, k.who, dest.Name, at, died.Round(time.Millisecond), err)
	}
	if victim != nil {
		victim.WaitReady()
	}
	t.Logf("moment %d: %s killed at step %q, %s after the start; whole after %s, %d attempts", moment, k.who, at, died.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), job.Attempts)
}

// await waits for the moment and returns the step that the job was seen at.
func (k killing) await(dest *harness.Node, run *harness.RepairRun) string {
	if k.step == "" {
		time.Sleep(k.pause) // the moment is the drill's choice, nothing is waited for
		return k.findJob(dest).Step
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline) && !run.Ended(); time.Sleep(2 * time.Millisecond) {
		if j := k.findJob(dest); j.Step == k.step {
			time.Sleep(k.pause)
			return j.Step
		}
	}
	return k.findJob(dest).Step // it went by too fast to be seen
}

// findJob is the newest repair to dest.
func (k killing) findJob(dest *harness.Node) adminapi.Repair {
	jobs, err := k.c.Repairs(true)
	if err != nil {
		return adminapi.Repair{}
	}
	for _, j := range jobs { // newest first
		if j.Destination == dest.Name {
			return j
		}
	}
	return adminapi.Repair{}
}
