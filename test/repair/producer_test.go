//go:build cluster

package repair

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/test/harness"
)

// perBatch records are in each batch of the raw producer.
const perBatch = 3

// sentBatch is a batch of the raw producer, and where it was acknowledged.
type sentBatch struct {
	seq    int32
	id     uint64
	offset int64
}

// request makes the batch again, byte by byte.
func (b sentBatch) request(pid int64, epoch int16) *kmsg.ProduceRequest {
	req := harness.ProduceRequest("ledger", 0, -1, b.id)
	var records []batch.Record
	for i := range perBatch {
		records = append(records, batch.Record{Timestamp: 1_700_000_000_000 + int64(b.id), Value: harness.Payload(b.id+uint64(i), 64)})
	}
	req.Topics[0].Partitions[0].Records = batch.Build(batch.Spec{Producer: &batch.Producer{ID: pid, Epoch: epoch, Sequence: b.seq}, Records: records})
	return req
}

func produceRaw(t *testing.T, raw *harness.Raw, req *kmsg.ProduceRequest) (code int16, offset int64) {
	t.Helper()
	resp, err := raw.Ask(req, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	code, offset, err = harness.Produced(resp)
	if err != nil {
		t.Fatal(err)
	}
	return code, offset
}

// I11, D: an idempotent producer's last five batches are sent again after the lease has moved to a replica that a repair
// has made: they get the offsets that they had, nothing is written twice, and the next batch goes on. Once the tail was
// sealed for the repair, so that the batches stand in sealed segments alone, and once they are in the live tail.
func TestProducer_LastFiveBatchesAtTheRepairedReplica(t *testing.T) {
	for _, sealTail := range []bool{true, false} {
		t.Run(fmt.Sprintf("seal tail %v", sealTail), func(t *testing.T) {
			c, spare := withSpare(t, harness.Options{}, 1, smallSegments...)
			acks := fill(t, c, 1, 2*mib, 4096, 1)
			holder := replicasOf(t, c, 0)[0]
			raw := harness.DialRaw(t, holder.Kafka)
			pid, epoch := initProducer(t, raw)
			sent := sendBatches(t, raw, pid, epoch, after(acks))
			has := replicasOf(t, c, 0)
			args := []string{"ledger/0", "--node", spare.Name, "--replace", has[1].Name}
			if sealTail {
				args = append(args, "--seal-tail")
			}
			job, stderr, code := holder.Repair(60*time.Second, args...)
			mustBeWhole(t, job, stderr, code)
			if last := sent[len(sent)-1].offset; sealTail != (job.SealedEnd > last) {
				t.Errorf("sealed end %d, the last batch stands at %d", job.SealedEnd, last)
			}
			holder.Kill()
			c.LeadAt("ledger", 0, spare)
			end := resend(t, c, spare, pid, epoch, sent)
			holder.Start()
			holder.WaitReady()
			for _, b := range sent {
				for i := range perBatch {
					acks = append(acks, harness.Ack{ID: b.id + uint64(i), Offset: b.offset + int64(i)})
				}
			}
			read := c.VerifyLedger("ledger", acks)
			if int64(len(read)) != end {
				t.Errorf("%d records stand in the log, the end is %d", len(read), end)
			}
		})
	}
}

func initProducer(t *testing.T, raw *harness.Raw) (pid int64, epoch int16) {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.SetVersion(4)
	req.TransactionTimeoutMillis = 60_000
	resp, err := raw.Ask(req, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := resp.(*kmsg.InitProducerIDResponse)
	if !ok || got.ErrorCode != 0 {
		t.Fatalf("InitProducerID: %+v", resp)
	}
	return got.ProducerID, got.ProducerEpoch
}

// sendBatches sends a dozen batches, and the last one twice at once.
func sendBatches(t *testing.T, raw *harness.Raw, pid int64, epoch int16, first uint64) []sentBatch {
	t.Helper()
	var sent []sentBatch
	for i := range 12 {
		b := sentBatch{seq: int32(i * perBatch), id: first + uint64(i*perBatch)}
		code, offset := produceRaw(t, raw, b.request(pid, epoch))
		if code != 0 {
			t.Fatalf("batch %d: code %d", i, code)
		}
		b.offset = offset
		sent = append(sent, b)
	}
	last := sent[len(sent)-1]
	if code, offset := produceRaw(t, raw, last.request(pid, epoch)); code != 0 || offset != last.offset {
		t.Fatalf("the last batch again, at the same leader: code %d, offset %d, want %d", code, offset, last.offset)
	}
	return sent
}

// resend sends the last five batches to the new leader, in any order, then a new one; it returns the log end.
func resend(t *testing.T, c *harness.Cluster, leader *harness.Node, pid int64, epoch int16, sent []sentBatch) int64 {
	t.Helper()
	_, before := c.Holder("ledger", 0)
	raw := harness.DialRaw(t, leader.Kafka)
	for _, i := range []int{1, 5, 3, 2, 4, 5} {
		b := sent[len(sent)-i]
		if code, offset := produceRaw(t, raw, b.request(pid, epoch)); code != 0 || offset != b.offset {
			t.Errorf("batch with sequence %d again, at the repaired replica: code %d, offset %d, want %d", b.seq, code, offset, b.offset)
		}
	}
	if _, now := c.Holder("ledger", 0); now.LogEnd != before.LogEnd {
		t.Errorf("K4: the log end went from %d to %d with batches that were there", before.LogEnd, now.LogEnd)
	}
	last := sent[len(sent)-1]
	next := sentBatch{seq: last.seq + perBatch, id: last.id + perBatch}
	code, offset := produceRaw(t, raw, next.request(pid, epoch))
	if code != 0 || offset != before.LogEnd {
		t.Errorf("the next batch: code %d, offset %d, want %d", code, offset, before.LogEnd)
	}
	gap := sentBatch{seq: next.seq + 2*perBatch, id: next.id + 2*perBatch}
	if code, _ := produceRaw(t, raw, gap.request(pid, epoch)); code != 45 {
		t.Errorf("a batch with a gap in its sequence: code %d, want 45 (OUT_OF_ORDER_SEQUENCE_NUMBER)", code)
	}
	return offset + perBatch
}
