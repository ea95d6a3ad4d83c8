//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// rawIDs lie above every id of a ledger, so that content tells who wrote a record.
const rawIDs = uint64(1) << 40

// A holder is paused for three lease times with records in its socket buffers. When it wakes it acknowledges and
// admits nothing; what had passed the check before may be in its file, and is cut (I3, I7, A1 of the faults).
func TestPause_HolderWakesAfterThreeLeaseTimes(t *testing.T) {
	const lease = 4500 * time.Millisecond
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: append([]string{"--raft-heartbeat", "500ms", "--lease-time", lease.String()}, steady...)})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 64})
	ledger.WaitMore(100, 30*time.Second)
	for _, leader := range []bool{false, true} {
		t.Run(fmt.Sprintf("Raft leader %v", leader), func(t *testing.T) { pauseHolder(t, c, ledger, leader, lease) })
	}
	acks := ledger.Stop(60 * time.Second)
	c.VerifyLedger("ledger", acks)
	checkNoRaw(t, c, "ledger")
}

func pauseHolder(t *testing.T, c *harness.Cluster, ledger *harness.Ledger, leader bool, lease time.Duration) {
	holder, before := c.HolderBeside("ledger", leader)
	var raws []*harness.Raw
	for _, acks := range []int16{-1, 1} {
		raw := harness.DialRaw(t, holder.Kafka)
		if code := mustProduce(t, raw, acks, harness.NotInLedger); code != 0 {
			t.Fatalf("acks %d: a record before the pause is answered with code %d", acks, code)
		}
		raws = append(raws, raw)
	}
	holder.Pause()
	paused := time.Now()
	for i, acks := range []int16{-1, 1} {
		for k := range uint64(50) {
			if err := raws[i].Send(harness.ProduceRequest("ledger", 0, acks, rawIDs+1+k)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ledger.WaitMore(100, 60*time.Second)
	time.Sleep(time.Until(paused.Add(3 * lease)))
	holder.Resume()
	for i, raw := range raws {
		refused := 0
		for range 50 {
			resp, err := raw.Receive(30 * time.Second)
			if err != nil {
				break // closed: as good an answer as a refusal
			}
			code, offset, err := harness.Produced(resp)
			if err != nil {
				t.Fatal(err)
			}
			if code == 0 {
				t.Fatalf("connection %d: the holder that slept for %s acknowledged a record at offset %d", i, 3*lease, offset)
			}
			refused++
		}
		t.Logf("connection %d: %d of 50 records in the socket buffer answered with a refusal, the rest with a closed connection", i, refused)
	}
	ledger.WaitMore(200, 60*time.Second)
	c.Eventually(30*time.Second, "a later epoch", func() error { // the node that woke may answer, and hear of it last
		if _, after := c.Holder("ledger", 0); after.Epoch <= before.Epoch {
			return fmt.Errorf("lease before %+v, after %+v", before, after)
		}
		return nil
	})
	c.WaitInSync("ledger", 60*time.Second)
}

// mustProduce writes one record, of an id that checkNoRaw doesn't look for, and returns the code of the answer.
func mustProduce(t *testing.T, raw *harness.Raw, acks int16, id uint64) int16 {
	t.Helper()
	resp, err := raw.Ask(harness.ProduceRequest("ledger", 0, acks, id), 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	code, _, err := harness.Produced(resp)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// checkNoRaw reads the topic and fails if a record of the raw producers is in it.
func checkNoRaw(t *testing.T, c *harness.Cluster, topic string) {
	t.Helper()
	ends := map[int32]int64{}
	for _, l := range c.WaitCaughtUp(topic, 30*time.Second) {
		ends[l.Range] = l.HighWatermark
	}
	read := harness.ReadAll(t, c.Bootstrap(), topic, ends)
	if i := slices.IndexFunc(read, func(r harness.Read) bool { return r.ID > rawIDs }); i >= 0 {
		t.Errorf("record %d of a producer that was refused is at offset %d", read[i].ID-rawIDs, read[i].Offset)
	}
}
