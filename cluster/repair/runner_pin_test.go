package repair

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
)

// F1: retention takes segments while they are pinned: all that was promised arrives.
func TestRunner_RetentionUnderAPin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(4, 1_200_000)
		w.write(1000)
		w.peers.afterSeal = func() { w.reclaim(3) }
		w.start()
		job := w.finish(w.submit(sealTail))
		w.whole(job)
		if len(w.peers.chunks) != 5 {
			t.Errorf("fetched segments %v, want all five that were promised", w.peers.chunks)
		}
	})
}

// F1: a pin that expires before retention takes the segments is a measured gap with its cause, never a silent success.
func TestRunner_PinExpires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(4, 1_200_000)
		gone := w.leader.Segments()[2].Base
		w.peers.afterSeal = func() {
			w.source.Unpin(w.peers.pin)
			w.reclaim(2)
		}
		w.start()
		job := w.finish(w.submit(sealTail))
		if job.Step != fsm.RepairDone || job.Outcome != fsm.OutcomeGap || job.Gap != int64(gone) || !job.Voter {
			t.Fatalf("ended as %+v", job)
		}
		for _, want := range []string{fmt.Sprintf("[0, %d)", gone), "retention reclaimed", "pin"} {
			if !strings.Contains(job.Cause, want) {
				t.Errorf("cause %q does not say %q", job.Cause, want)
			}
		}
		w.same()
	})
}

// A segment that the leader lists and, being damaged there, does not hold: when retention takes it nobody has it, and the job
// neither waits for ever nor hides it.
func TestRunner_PinWithoutBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(3, 1_200_000)
		gone := w.leader.Segments()[1].Base
		w.peers.before = func(_ context.Context, _ vtop.NodeName, seg transport.SegmentRef, _ int64) error {
			if seg.Base == 0 {
				return transport.ErrNoSegment
			}
			return nil
		}
		w.start()
		id := w.submit()
		w.await(id, "waiting for the segment", func(j *fsm.RepairJob) bool { return strings.Contains(j.Waiting, "no source has segment 0") })
		w.reclaim(1)
		job := w.finish(id)
		if job.Outcome != fsm.OutcomeGap || job.Gap != int64(gone) || !strings.Contains(job.Cause, fmt.Sprintf("[0, %d)", gone)) {
			t.Fatalf("ended as %+v", job)
		}
		w.same()
	})
}

// The gap that an earlier life has noted outlives a crash, and one that it could not note is found.
func TestRunner_PinExpiresAcrossACrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(5, 1_200_000)
		hold := make(chan struct{})
		w.peers.before = func(ctx context.Context, _ vtop.NodeName, seg transport.SegmentRef, _ int64) error {
			if seg.Base == w.leader.Segments()[0].Base || ctx.Err() != nil {
				return nil
			}
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		first := w.leader.Segments()[1]
		gone := w.leader.Segments()[3].Base
		w.start()
		id := w.submit()
		w.await(id, "one segment here", func(*fsm.RepairJob) bool {
			for _, s := range w.dest.Stagings() {
				if s.Bytes >= 1_200_000 {
					return true
				}
			}
			return false
		})
		time.Sleep(time.Second)
		w.stop()
		w.source.Unpin(w.peers.pin)
		w.reclaim(3)
		w.peers.with(func() { w.peers.before = nil })
		w.crash()
		job := w.finish(id)
		if job.Outcome != fsm.OutcomeGap || job.Gap != int64(gone-first.Base) || !strings.Contains(job.Cause, fmt.Sprintf("[%d, %d)", first.Base, gone)) {
			t.Fatalf("ended as %+v", job)
		}
		w.same()
	})
}
