//go:build cluster

package repair

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// fetchedFrom asks a node for the records of a range at an offset: the code of the answer, and how many bytes came.
func fetchedFrom(t *testing.T, n *harness.Node, topic string, offset int64) (code int16, bytes int) {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(11)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 100, 1, mib, -1
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes, part.CurrentLeaderEpoch, part.LogStartOffset = offset, mib, -1, -1
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.Partitions = topic, []kmsg.FetchRequestTopicPartition{part}
	req.Topics = append(req.Topics, ft)
	resp, err := harness.DialRaw(t, n.Kafka).Ask(req, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	answer := resp.(*kmsg.FetchResponse)
	if answer.ErrorCode != 0 {
		return answer.ErrorCode, 0
	}
	p := answer.Topics[0].Partitions[0]
	return p.ErrorCode, len(p.RecordBatches)
}

// E3, I9, I10: a bit rots in a sealed segment of one voter, and the two others die: it is all that is left. Of its hole nothing is
// served. A plan to recover from it names the damage; carried out, the voter leads, what is good of it is read and written to, and the hole
// stays an error that no reader passes unseen.
func TestDamage_HoleOnTheOnlyVoterThatIsLeft(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 5, Flags: base})
	createTopic(t, c, "ledger", 1, 3, smallSegments...)
	acks := fill(t, c, 1, 4*mib, 4096, 1)
	c.WaitCaughtUp("ledger", 30*time.Second)
	has := replicasOf(t, c, 0)
	victim := has[1]
	files := sealed(t, c, 0, victim, 3)
	bad, next := files[1], harness.SegmentBase(files[2])
	for _, n := range has {
		n.Kill()
	}
	flip(t, bad)
	victim.Start()
	victim.WaitReady()
	admin := running(t, c, victim)
	if code, n := fetchedFrom(t, victim, "ledger", harness.SegmentBase(bad)); code == 0 {
		t.Errorf("one voter of three answers a reader: %d bytes", n)
	}
	var plan adminapi.RecoverPlan
	c.Eventually(60*time.Second, "a plan that names the damage", func() error {
		out, errOut, code := admin.Ctl("range", "recover", "ledger/0", "--from", victim.Name, "--dry-run", "-o", "json")
		if code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut)
		}
		if err := decode(out, &plan); err != nil {
			return err
		}
		for _, v := range plan.Voters {
			if v.Node == victim.Name && v.State == "damaged" {
				return nil
			}
		}
		return fmt.Errorf("plan %+v", plan)
	})
	t.Logf("the plan says: %+v", plan.Warnings)
	c.Eventually(60*time.Second, "a recovery from the only voter", func() error {
		if _, errOut, code := admin.Ctl("range", "recover", "ledger/0", "--from", victim.Name, "--accept-data-loss", "--confirm", "ledger/0"); code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut)
		}
		return nil
	})
	c.Eventually(30*time.Second, victim.Name+" leads", func() error {
		d, err := admin.LeaseDetail("ledger", 0)
		if err != nil || d.Holder != victim.Name || d.State != "serving" {
			return fmt.Errorf("%+v (%w)", d, err)
		}
		return nil
	})
	for base, want := range map[int64]bool{0: true, harness.SegmentBase(bad): false, next: true} {
		if code, n := fetchedFrom(t, victim, "ledger", base); (code == 0 && n > 0) != want {
			t.Errorf("records at %d: code %d, %d bytes; the hole is [%d, %d)", base, code, n, harness.SegmentBase(bad), next)
		}
	}
	fill(t, c, 1, mib/4, 4096, after(acks)) // it still takes records
}

// E12: a group has committed a position that the log has no more, since a majority was lost and the rest recovered. New records
// go beyond that position. A member that comes back starts where the log was cut: it gets every new record, and none is passed over because
// its offset had been committed before.
func TestRecover_GroupPositionBeyondTheEnd(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 5, Flags: base})
	createTopic(t, c, "ledger", 1, 3, smallSegments...)
	acks := fill(t, c, 1, mib/4, 1024, 1)
	c.WaitCaughtUp("ledger", 30*time.Second)
	has := replicasOf(t, c, 0)
	kept := has[2]
	kept.Kill()
	lost := fill(t, c, 1, mib/4, 1024, after(acks)) // only the two that go have these
	position := readInGroup(t, c, int(lost[len(lost)-1].Offset)+1, nil)
	has[0].Kill()
	has[1].Kill()
	kept.Start()
	kept.WaitReady()
	admin := running(t, c, kept)
	var plan adminapi.RecoverPlan
	c.Eventually(60*time.Second, "recovered", func() error {
		out, errOut, code := admin.Ctl("range", "recover", "ledger/0", "--from", kept.Name, "--accept-data-loss", "--confirm", "ledger/0", "-o", "json")
		if code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut)
		}
		return decode(out, &plan)
	})
	if plan.KeepEnd >= position {
		t.Fatalf("kept up to %d, the group stands at %d: nothing to test", plan.KeepEnd, position)
	}
	fresh := fill(t, c, 1, mib/2, 1024, after(lost)) // beyond the position again
	if last := fresh[len(fresh)-1].Offset; last <= position {
		t.Fatalf("the log ends at %d, the group stands at %d: nothing to test", last, position)
	}
	want := map[uint64]bool{}
	for _, a := range fresh {
		want[a.ID] = true
	}
	now := readInGroup(t, c, 0, want)
	t.Logf("kept up to %d, the group stood at %d, and stands at %d once all %d new records are read", plan.KeepEnd, position, now, len(fresh))
}

// readInGroup reads as the one member of a group until so many records came, or all of want, commits, and returns the position.
func readInGroup(t *testing.T, c *harness.Cluster, atLeast int, want map[uint64]bool) int64 {
	t.Helper()
	cl, err := kgo.NewClient(append(harness.ClientOptions(c.Bootstrap()), kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("ledger"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.SessionTimeout(10*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for read := 0; read < atLeast || len(want) > 0; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d records read, %d are missing", read, len(want))
		}
		fetches.EachError(func(_ string, _ int32, err error) { t.Logf("the member is told: %v", err) })
		fetches.EachRecord(func(r *kgo.Record) {
			read++
			if id, err := harness.PayloadID(r.Value); err == nil {
				delete(want, id)
			}
		})
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	got, err := kadm.NewClient(cl).FetchOffsets(ctx, "readers")
	if err != nil {
		t.Fatal(err)
	}
	at, ok := got.Lookup("ledger", 0)
	if !ok || at.Err != nil {
		t.Fatalf("the group's position: %+v", got)
	}
	return at.At
}
