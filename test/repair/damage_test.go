//go:build cluster

package repair

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// scrubbed is what `vtopctl scrub -o json` prints.
type scrubbed struct {
	Verdicts []adminapi.ScrubVerdict `json:"verdicts"`
	Summary  adminapi.ScrubSummary   `json:"summary"`
}

func scrub(t *testing.T, n *harness.Node) (out scrubbed, code int) {
	t.Helper()
	text, errOut, code := n.Ctl("scrub", "ledger", "-o", "json")
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("vtopctl scrub: exit %d: %v in %q: %s", code, err, text, errOut)
	}
	return out, code
}

// scrubsClean waits until a scrub finds every segment of so many replicas good.
func scrubsClean(t *testing.T, c *harness.Cluster, replicas int) {
	t.Helper()
	c.Eventually(60*time.Second, "a scrub that finds all good", func() error {
		out, code := scrub(t, running(t, c))
		nodes := map[string]bool{}
		for _, v := range out.Verdicts {
			nodes[v.Node] = true
		}
		if code != 0 || out.Summary.OK == 0 || out.Summary.Bad+out.Summary.Unknown > 0 || len(nodes) < replicas {
			return fmt.Errorf("exit %d, %d replicas, %+v", code, len(nodes), out.Summary)
		}
		return nil
	})
}

// files gives size and modification time of every sealed segment, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, path := range harness.SealedFiles(dir) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(path)] = fmt.Sprintf("%d %s", info.Size(), info.ModTime())
	}
	return out
}

// I9: one bit of a sealed segment rots in a running replica, once a follower's and once the leader's. The scrub finds it
// and names node and segment; clients read the right bytes all the while; that one segment is fetched and replaced, the
// other files of the replica are not touched, and it stays the replica that it was.
func TestDamage_FlippedBitIsFoundAndReplacedAlone(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: append([]string{"--scrub-rate", "0"}, base...)})
	createTopic(t, c, "ledger", 1, 3, smallSegments...)
	acks := fill(t, c, 1, 8*mib, 4096, 1)
	c.WaitCaughtUp("ledger", 30*time.Second)
	for _, n := range c.Nodes {
		sealed(t, c, 0, n, 6)
	}
	scrubsClean(t, c, 3)
	for i, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			victim := replicasOf(t, c, 0)[1-i]
			was, err := c.ReplicaOn("ledger", 0, victim)
			if err != nil {
				t.Fatal(err)
			}
			dir := c.RangeDir("ledger", 0, victim)
			good, bad := files(t, dir), harness.SealedFiles(dir)[2+i]
			flip(t, bad)
			out, code := scrub(t, running(t, c, victim))
			if code != 3 || out.Summary.Bad != 1 {
				t.Errorf("scrub: exit %d, %+v", code, out.Summary)
			}
			for _, v := range out.Verdicts {
				if v.Verdict == adminapi.ScrubBad && (v.Node != victim.Name || v.Base != harness.SegmentBase(bad) || v.Reason == "") {
					t.Errorf("the scrub blames %+v, damaged is %s of %s", v, filepath.Base(bad), victim.Name)
				}
			}
			readBack(t, c, acks)
			healedInPlace(t, c, victim, bad)
			scrubsClean(t, c, 3)
			if now, err := c.ReplicaOn("ledger", 0, victim); err != nil || now.ReplicaID != was.ReplicaID || now.Role != "voter" {
				t.Errorf("replica %+v (%v), it was %+v", now, err, was)
			}
			changed := 0
			for name, stamp := range files(t, dir) {
				if good[name] != stamp {
					changed++
					if name != filepath.Base(bad) {
						t.Errorf("%s was touched, damaged was only %s", name, filepath.Base(bad))
					}
				}
			}
			t.Logf("%d of %d files of %s changed", changed, len(good), victim.Name)
		})
	}
	c.VerifyLedger("ledger", acks)
}

// readBack reads all that was acknowledged, as clients do.
func readBack(t *testing.T, c *harness.Cluster, acks []harness.Ack) {
	t.Helper()
	_, l := c.Holder("ledger", 0)
	if err := harness.CheckLedger(acks, harness.ReadAll(t, c.Bootstrap(), "ledger", map[int32]int64{0: l.HighWatermark})); err != nil {
		t.Error(err)
	}
}

// healedInPlace waits until the file verifies again, and holds the job that did it to what it should have moved.
func healedInPlace(t *testing.T, c *harness.Cluster, victim *harness.Node, bad string) {
	t.Helper()
	c.Eventually(60*time.Second, filepath.Base(bad)+" healed on "+victim.Name, func() error {
		if _, errOut, code := victim.Ctl("segment", "verify", bad); code != 0 {
			return errors.New(strings.TrimSpace(errOut))
		}
		return nil
	})
	job := waitStep(t, c, 30*time.Second, func(j adminapi.Repair) bool {
		return j.Destination == victim.Name && j.InPlace && j.Step == adminapi.StepDone
	})
	if job.Segments != 1 || job.Outcome != adminapi.OutcomeWhole || job.Origin == "operator" {
		t.Errorf("healed by %+v", job)
	}
	t.Logf("healed by repair %d (%s, %s): %d segment, %d bytes from %v", job.ID, job.Origin, job.Reason, job.Segments, job.Bytes, job.Sources)
}

// I9: a source's segments rot before they are copied. A source reads what it sends against its manifest, so it finds that
// by itself, refuses them and mends itself; if it sent them, it would be named and dropped. It is the only source that the
// repair may use, so that it is asked for all of them, and the repair ends whole once it has healed.
func TestDamage_SourceThatRotsIsDroppedAndHeals(t *testing.T) {
	c, spare := withSpare(t, harness.Options{Flags: []string{"--scrub-rate", "0"}}, 1, smallSegments...)
	acks := fill(t, c, 1, 16*mib, 4096, 1)
	c.WaitCaughtUp("ledger", 30*time.Second)
	has := replicasOf(t, c, 0)
	leader, source, replaced := has[0], has[1], has[2]
	segments := sealed(t, c, 0, source, 14)
	run := leader.StartRepair("ledger/0", "--node", spare.Name, "--replace", replaced.Name, "--source", source.Name, "--max-rate", "3MiB/s")
	waitStep(t, c, 30*time.Second, transferring(spare))
	var rotten []string
	for _, path := range segments[8:] { // not copied yet
		flip(t, path)
		rotten = append(rotten, path)
	}
	job, stderr, code := run.Wait(180 * time.Second)
	mustBeWhole(t, job, stderr, code)
	notBelieved(t, c, job, source)
	if n, err := harness.CompareSealed(c.RangeDir("ledger", 0, leader), c.RangeDir("ledger", 0, spare), job.SealedEnd); err != nil || n == 0 {
		t.Errorf("%d segments compared with the leader's: %v", n, err)
	}
	scrub(t, leader) // what was not asked of it is found by reading
	for _, path := range rotten {
		c.Eventually(60*time.Second, filepath.Base(path)+" healed on "+source.Name, func() error {
			if _, errOut, code := source.Ctl("segment", "verify", path); code != 0 {
				return errors.New(strings.TrimSpace(errOut))
			}
			return nil
		})
	}
	scrubsClean(t, c, 3)
	c.VerifyLedger("ledger", acks)
}

// notBelieved holds that the source was dropped by name, or refused what had rotted and set out to mend it.
func notBelieved(t *testing.T, c *harness.Cluster, job adminapi.Repair, source *harness.Node) {
	t.Helper()
	for _, d := range job.DroppedSources {
		if d.Node == source.Name && d.Reason != "" {
			t.Logf("dropped: %+v", d)
			return
		}
	}
	jobs, err := c.Repairs(true)
	mends := slices.IndexFunc(jobs, func(j adminapi.Repair) bool { return j.Destination == source.Name && j.InPlace })
	if mends < 0 || !strings.Contains(source.Log(), "segment refused") {
		t.Errorf("%s was neither dropped (%+v) nor did it refuse what has rotted: %+v (%v)", source.Name, job.DroppedSources, jobs, err)
		return
	}
	t.Logf("%s refused what had rotted, and mends it: repair %d, %s", source.Name, jobs[mends].ID, jobs[mends].Reason)
}
