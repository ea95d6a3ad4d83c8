package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// conclude ends the load, reads everything back, and makes the checks.
func (r *runner) conclude(ctx context.Context) {
	r.enter("ending the load")
	r.tell("ending the load, then everything is read back")
	r.stopLoad(ctx)
	var breaches []Breach
	unknown := map[string]string{}
	seen := map[string]looked{}
	if err := r.await(ctx, min(r.cfg.Patience, endLimit), r.caughtUp); err != nil {
		r.fail("the replicas of %s have not caught up: %v", r.topic, err)
	}
	acks := r.ledger.Since(0)
	r.letObserverCatchUp(ctx, acks)
	r.eyes.Stop() // before the ends are asked for: all that it read is below them, whatever others go on to write
	observed, asked := r.eyes.Counts()
	read, starts, err := r.readBack(ctx)
	if err != nil {
		for _, k := range []string{K1, K2, K4} {
			unknown[k] = "not everything could be read back: " + err.Error()
		}
	} else {
		breaches = append(breaches, CheckLedger(acks, read, starts)...)
		breaches = append(breaches, r.eyes.Check(read)...)
	}
	r.history(ctx, unknown)
	spans, held, epochs := r.leases.Outcome()
	breaches = append(breaches, held...)
	scrubbed, found := r.scrub(ctx, unknown)
	breaches = append(breaches, found...)

	sent, acked := r.ledger.Counts()
	r.report.Load.Sent, r.report.Load.Acked, r.report.Load.Read = sent, acked, observed
	r.report.Load.GivenUp, r.report.Load.HeldBack = len(r.ledger.Failed()), r.ledger.HeldBack()
	if failed := r.ledger.Failed(); len(failed) > 0 {
		r.note("%d records were given up, the first: %v", len(failed), failed[0])
	}
	seen[K1] = looked{int64(len(acks)), "acknowledged records"}
	seen[K2] = looked{observed, "records read twice"}
	seen[K3] = looked{asked, "times asked"}
	seen[K4] = looked{int64(len(read)), "records read back"}
	seen[K5] = looked{scrubbed, "segments compared"}
	seen[K6] = looked{epochs, "epochs seen"}
	r.report.Checks = checksOf(breaches, seen, unknown)
	r.report.Leases = spans
	r.report.measure(acks, r.report.Started.Add(time.Duration(r.report.TookMS)*time.Millisecond))
}

// stopLoad waits until what was sent is answered.
func (r *runner) stopLoad(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	if err := r.ledger.Stop(bounded); err != nil {
		r.note("some records were not answered within %s of the end", endLimit)
	}
	r.report.TookMS = time.Since(r.report.Started).Milliseconds()
}

// caughtUp is whole, and every replica is as far as its leader, all of it visible.
func (r *runner) caughtUp(ctx context.Context) error {
	if err := r.whole(ctx); err != nil {
		return err
	}
	leases, err := r.admin.Leases(ctx, r.topic)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if l.HighWatermark != l.LogEnd || l.LogEnd == adminapi.Unknown {
			return fmt.Errorf("range %d ends at %d and is visible up to %d", l.Range, l.LogEnd, l.HighWatermark)
		}
		for _, rep := range l.Replicas {
			if rep.LogEnd != l.LogEnd && r.report.OwnTopic { // others may be writing to another one
				return fmt.Errorf("range %d ends at %d, on %s at %d", l.Range, l.LogEnd, rep.Node, rep.LogEnd)
			}
		}
	}
	return nil
}

// readBack reads the topic with a client of its own, from where it ended before the drill, or begins now, to where it ends
// now. starts are where each range was read from.
func (r *runner) readBack(ctx context.Context) (read []Read, starts map[int32]int64, err error) {
	r.enter("reading everything back")
	ctx, cancel := context.WithTimeout(ctx, 5*endLimit)
	defer cancel()
	asks, err := r.client(settingsAreRight)
	if err != nil {
		return nil, nil, err
	}
	ends, err := kadm.NewClient(asks).ListEndOffsets(ctx, r.topic)
	firsts, err2 := kadm.NewClient(asks).ListStartOffsets(ctx, r.topic)
	asks.Close()
	if err = errors.Join(err, err2, ends.Error(), firsts.Error()); err != nil {
		return nil, nil, err
	}
	starts = map[int32]int64{}
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(l kadm.ListedOffset) {
		starts[l.Partition] = r.began[l.Partition]
		if first, ok := firsts.Lookup(r.topic, l.Partition); ok {
			starts[l.Partition] = max(starts[l.Partition], first.Offset)
		}
		if l.Offset > starts[l.Partition] {
			from[l.Partition], left[l.Partition] = kgo.NewOffset().At(starts[l.Partition]), l.Offset
		}
	})
	if len(left) == 0 {
		return nil, starts, nil
	}
	client, err := r.client(settingsAreRight, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: from}))
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, nil, fmt.Errorf("%d ranges were not read to their ends: %w", len(left), err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			end, reading := left[rec.Partition]
			if !reading {
				return
			}
			if rec.Offset < end {
				read = append(read, r.readOf(rec))
			}
			if rec.Offset+1 >= end {
				delete(left, rec.Partition)
			}
		})
	}
	return read, starts, nil
}

// readOf takes a record for one of the ledger's if it says so; a value that is damaged then has an id that nobody was told.
func (r *runner) readOf(rec *kgo.Record) Read {
	out := Read{ID: NotInLedger, Range: rec.Partition, Offset: rec.Offset, Epoch: rec.LeaderEpoch, Sum: sumOf(rec.Value)}
	ours := slices.ContainsFunc(rec.Headers, func(h kgo.RecordHeader) bool { return h.Key == runHeader && string(h.Value) == r.run() })
	if id, err := PayloadID(rec.Value); ours && err == nil {
		out.ID = id
	}
	return out
}

// letObserverCatchUp gives the reader time to see what the ledger wrote last.
func (r *runner) letObserverCatchUp(ctx context.Context, acks []Ack) {
	last := map[int32]int64{}
	for _, a := range acks {
		last[a.Range] = max(last[a.Range], a.Offset)
	}
	err := r.await(ctx, min(r.cfg.Patience, endLimit), func(context.Context) error {
		reached := r.eyes.Reached()
		for n, offset := range last {
			if reached[n] <= offset {
				return fmt.Errorf("the reader of range %d is at %d, the last record at %d", n, reached[n], offset)
			}
		}
		return nil
	})
	if err != nil {
		r.fail("what was written is not read: %v", err)
	}
}

// history takes in what the cluster itself remembers of its leases.
func (r *runner) history(ctx context.Context, unknown map[string]string) {
	for n := range r.report.Ranges {
		err := r.await(ctx, endLimit, func(ctx context.Context) error {
			d, err := r.admin.Lease(ctx, r.topic, int32(n))
			if err == nil {
				r.leases.History(d)
			}
			return err
		})
		if err != nil {
			unknown[K6] = fmt.Sprintf("range %d: its history could not be asked for: %v", n, err)
		}
	}
}

// scrub seals what was written, so that its root is in the catalogue, and has every replica compared with it (K5).
func (r *runner) scrub(ctx context.Context, unknown map[string]string) (ok int64, out []Breach) {
	r.enter("sealing, and comparing the replicas")
	for n := range r.report.Ranges {
		err := r.await(ctx, endLimit, func(ctx context.Context) error {
			_, err := r.admin.Seal(ctx, r.topic, int32(n), adminapi.SealRequest{})
			var e *adminapi.Error
			if errors.As(err, &e) && e.Code == adminapi.CodeNeverWritten {
				return nil
			}
			return err
		})
		if err != nil {
			unknown[K5] = fmt.Sprintf("range %d could not be sealed: %v", n, err)
			return 0, nil
		}
	}
	// A follower seals when it hears of it: what is unknown is asked for again.
	err := r.await(ctx, endLimit, func(ctx context.Context) error {
		ok, out = 0, nil
		var why error
		_, err := r.admin.Scrub(ctx, adminapi.ScrubRequest{Topic: r.topic, Range: -1}, func(v adminapi.ScrubVerdict) error {
			switch v.Verdict {
			case adminapi.ScrubOK:
				ok++
			case adminapi.ScrubBad:
				out = append(out, breach(K5, "%s on %s: segment %d: %s", v.Range, v.Node, v.Base, v.Reason))
			default:
				why = fmt.Errorf("%s on %s: segment %d is not compared: %s", v.Range, v.Node, v.Base, v.Reason)
			}
			return nil
		})
		return errors.Join(err, why)
	})
	if err != nil {
		unknown[K5] = err.Error()
	}
	return ok, out
}
