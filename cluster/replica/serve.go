package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
)

var _ transport.SegmentHandler = (*Engine)(nil)

// maxServed bounds the segments that are read for others at once (I13); more are refused with vtop.ErrOverloaded.
const maxServed = 64

// OpenSegment opens a sealed segment for another node, from whatever replica is here and whole: a leader's, a follower's, or one
// that a pin still holds. A hole is refused, and so is a replica that may have forgotten, is in quarantine, or is being
// received itself. It implements transport.SegmentHandler.
func (e *Engine) OpenSegment(_ context.Context, _ transport.Caller, seg transport.SegmentRef) (*transport.SegmentBytes, error) {
	if err := e.mayServe(seg); err != nil {
		return nil, err
	}
	select {
	case e.served <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: node %q reads %d segments for others", vtop.ErrOverloaded, e.self, maxServed)
	}
	reader, err := e.store.OpenSealed(seg.Range, seg.Base, seg.Root, storage.PinID(seg.Pin))
	if err != nil {
		<-e.served
		return nil, onWire(err)
	}
	return &transport.SegmentBytes{Bytes: wireReader{reader}, Size: reader.Size(), Pressure: e.Pressure(), Release: func() {
		_ = reader.Close()
		<-e.served
	}}, nil
}

// OpenManifest opens the manifest of what OpenSegment would open. It implements transport.SegmentHandler.
func (e *Engine) OpenManifest(_ context.Context, _ transport.Caller, seg transport.SegmentRef) (*transport.SegmentBytes, error) {
	if err := e.mayServe(seg); err != nil {
		return nil, err
	}
	raw, err := e.store.ReadManifest(seg.Range, seg.Base, seg.Root, storage.PinID(seg.Pin))
	if err != nil {
		return nil, onWire(err)
	}
	return &transport.SegmentBytes{Bytes: bytes.NewReader(raw), Size: int64(len(raw)), Pressure: e.Pressure()}, nil
}

// mayServe looks whether this node may be a source of the range for whoever asks under that epoch.
func (e *Engine) mayServe(seg transport.SegmentRef) error {
	if !e.caughtUp() {
		return fmt.Errorf("%w: node %q has not caught up with the metadata", vtop.ErrNotReady, e.self)
	}
	st := e.machine.State()
	rg, ok := st.Range(seg.Range)
	if !ok {
		return fmt.Errorf("%w: %s", vtop.ErrUnknownRange, seg.Range)
	}
	if seg.Epoch != 0 && seg.Epoch < rg.LastEpoch {
		return &vtop.FencedError{Range: seg.Range, Claimed: seg.Epoch, Applied: rg.Lease, Reason: "the repair is of an earlier lease"}
	}
	mine, ok := rg.On(e.self)
	if !ok {
		if why, lost := lostOn(rg, e.self); lost {
			return fmt.Errorf("%w: range %s on node %q: %s", vtop.ErrReplicaLost, seg.Range, e.self, why)
		}
		if seg.Pin == 0 { // what a pin holds was sealed, whatever became of the replica
			return fmt.Errorf("%w: range %s has no replica on node %q", vtop.ErrUnknownRange, seg.Range, e.self)
		}
		return nil
	}
	if seg.Replica != 0 && seg.Replica != mine.ID {
		return fmt.Errorf("%w: replica %d of range %s is asked for, replica %d is here", vtop.ErrFenced, seg.Replica, seg.Range, mine.ID)
	}
	return e.wholeEnough(st, rg, mine)
}

func (e *Engine) wholeEnough(st *fsm.State, rg *fsm.Range, mine fsm.Replica) error {
	if e.receiving(st, rg, mine) {
		return fmt.Errorf("%w: replica %d of range %s is being received itself", vtop.ErrNotReady, mine.ID, rg.ID)
	}
	if s := e.slotOf(rg.ID, false); s != nil {
		s.mu.Lock()
		why := s.contradiction
		s.mu.Unlock()
		if why != "" {
			return &storage.QuarantineError{Range: rg.ID, Reason: why}
		}
	}
	if log := e.store.Get(rg.ID); log != nil && log.ReplicaID() != mine.ID {
		return fmt.Errorf("%w: the directory of range %s is replica %d's, not replica %d's", vtop.ErrReplicaLost, rg.ID, log.ReplicaID(), mine.ID)
	}
	return nil
}

// onWire gives the errors of the store the sentinels that cross the wire.
func onWire(err error) error {
	for _, row := range []struct{ is, as error }{
		{storage.ErrPinGone, transport.ErrPinGone}, {storage.ErrNoSegment, transport.ErrNoSegment}, {storage.ErrWrongRoot, transport.ErrWrongRoot},
		{storage.ErrNeverWritten, transport.ErrNeverWritten},
	} {
		if errors.Is(err, row.is) {
			return fmt.Errorf("%w: %w", row.as, err)
		}
	}
	return err
}

// wireReader is a reader of the store whose errors cross the wire.
type wireReader struct{ *storage.SealedReader }

// ReadAt implements io.ReaderAt.
func (w wireReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := w.SealedReader.ReadAt(p, off)
	return n, onWire(err)
}
