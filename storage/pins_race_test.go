package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// sealAndReclaim seals what is closed and lets retention take all that is sealed, as a leader does whose topic keeps less than a
// tail.
func sealAndReclaim(l *Log) error {
	for _, seg := range l.Closed() {
		root, _, err := l.Root(seg.Base)
		if err == nil {
			err = l.Seal(seg.Base, root)
		}
		if err != nil {
			return err
		}
		if err := l.SetLogStart(seg.End); err != nil {
			return err
		}
	}
	return nil
}

// Retention smaller than a tail, producers at full speed, and repair after repair: each gets all of its snapshot, to the
// end that its seal has told, continuous and as it was written (F1, F7).
func TestPin_RepairsAgainstRetention(t *testing.T) {
	repairs := 50
	if testing.Short() {
		repairs = 8
	}
	_, l := newLogOn(t, vfs.NewCrashFS(1))
	mustLead(t, l, 1, plainBatch(1, 100, 1))
	ctx, cancel := context.WithCancelCause(bg)
	fail := func(err error) {
		if err != nil && ctx.Err() == nil {
			cancel(err)
		}
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := uint64(0); ctx.Err() == nil; i++ {
			_, _, err := l.AppendLead(1, plainBatch(1, 200, i))
			if errors.Is(err, vtop.ErrOverloaded) {
				err = l.Flush(ctx)
			}
			if i%40 == 0 {
				err = errors.Join(err, sealAndReclaim(l))
			}
			fail(err)
		}
	})
	for i := range repairs {
		if err := onceAgainstRetention(ctx, l); err != nil {
			fail(fmt.Errorf("repair %d: %w", i, err))
			break
		}
	}
	done := errors.New("done")
	cancel(done)
	wait.Wait()
	wantErr(t, context.Cause(ctx), done)
	if pins := l.store.Pins(); len(pins) != 0 || l.store.pins.files != 0 || l.store.pins.bytes != 0 {
		t.Fatalf("left: %+v", pins)
	}
	checkLog(t, l)
}

// onceAgainstRetention is the leader's part of one repair, and the reading of what it pinned.
func onceAgainstRetention(ctx context.Context, l *Log) error {
	s := l.store
	pin, err := s.Pin(PinSpec{Range: l.rng, Growing: true})
	if err != nil {
		return err
	}
	defer s.Unpin(pin.ID)
	closed, err := l.CloseTail(1)
	if err != nil {
		return err
	}
	for {
		pin, err = s.SettlePin(pin.ID, closed.End)
		if !errors.Is(err, vtop.ErrNotReady) {
			break
		}
		if err := errors.Join(l.Flush(ctx), context.Cause(ctx)); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	at := pin.Base
	for _, seg := range pin.Segments {
		if seg.Base != at {
			return fmt.Errorf("the snapshot has a gap at %d", at)
		}
		if _, err := readSealed(s, Want{seg.Base, seg.End, seg.Bytes, seg.Root}, pin.ID); err != nil {
			return err
		}
		if _, err := s.ReadManifest(l.rng, seg.Base, seg.Root, pin.ID); err != nil {
			return err
		}
		at = seg.End
	}
	if at != closed.End {
		return fmt.Errorf("the snapshot ends at %d, sealed up to %d", at, closed.End)
	}
	return nil
}
