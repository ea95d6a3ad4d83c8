package transport

import (
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// Snapshot is the sealed prefix of a range as its leader's catalogue has it (peerpb.Snapshot).
type Snapshot struct {
	// Epoch is the lease under which it was taken, Replica the leader's replica.
	Epoch   vtop.Epoch
	Replica vtop.ReplicaID
	// SealedEnd is the end of the last segment, or LogStart if there is none.
	LogStart, SealedEnd   vtop.Offset
	HighWatermark, LogEnd vtop.Offset
	ConfigVersion         uint64
	// Pin is 0 if nothing was pinned; it ends by itself after PinIdle without use.
	Pin     uint64
	PinIdle time.Duration
	// Segments are continuous, from the one that holds LogStart up to SealedEnd.
	Segments []SealedSegment
	// Producers is the producer state at the base of the first segment.
	Producers []byte
}

// SealedSegment is one entry of the catalogue.
type SealedSegment struct {
	Base, End vtop.Offset
	// Bytes is its size, from 1 to MaxSegmentSize.
	Bytes     int64
	Root      [32]byte
	SealEpoch vtop.Epoch
}

// Ref names the segment for requests to the node that gave the snapshot.
func (s *Snapshot) Ref(r vtop.Range, seg SealedSegment) SegmentRef {
	return SegmentRef{Range: r, Base: seg.Base, Root: seg.Root, Size: seg.Bytes, Pin: s.Pin, Replica: s.Replica, Epoch: s.Epoch}
}

// SnapshotFrom reads a snapshot. One that contradicts itself is refused with ErrInvalid, naming the field.
func SnapshotFrom(m *peerpb.Snapshot) (*Snapshot, error) {
	if m == nil {
		return nil, refusef(ErrInvalid, "snapshot: missing")
	}
	s := &Snapshot{
		Epoch: vtop.Epoch(m.GetEpoch()), Replica: vtop.ReplicaID(m.GetReplicaId()),
		LogStart: vtop.Offset(m.GetLogStart()), SealedEnd: vtop.Offset(m.GetSealedEnd()),
		HighWatermark: vtop.Offset(m.GetHighWatermark()), LogEnd: vtop.Offset(m.GetLogEnd()),
		ConfigVersion: m.GetConfigVersion(), Pin: m.GetPin(), Producers: m.GetProducers(),
	}
	if s.Epoch < 1 || s.Replica == 0 {
		return nil, refusef(ErrInvalid, "snapshot: epoch %d, replica %d: want a lease and its holder's replica", s.Epoch, s.Replica)
	}
	if s.LogStart < 0 || s.SealedEnd < s.LogStart || s.LogEnd < s.SealedEnd || s.HighWatermark < 0 || s.HighWatermark > s.LogEnd {
		return nil, refusef(ErrInvalid, "snapshot: log start %d, sealed end %d, log end %d: want them to rise from 0; high watermark %d: want 0 to the log end",
			s.LogStart, s.SealedEnd, s.LogEnd, s.HighWatermark)
	}
	if idle := m.GetPinIdleMs(); idle < 0 || idle > int64(24*time.Hour/time.Millisecond) {
		return nil, refusef(ErrInvalid, "snapshot.pin_idle_ms: %d, want 0 to a day", idle)
	}
	s.PinIdle = time.Duration(m.GetPinIdleMs()) * time.Millisecond
	var err error
	s.Segments, err = segmentsFrom(m.GetSegments(), s.LogStart, s.SealedEnd)
	return s, err
}

func segmentsFrom(entries []*peerpb.SealedSegment, start, end vtop.Offset) ([]SealedSegment, error) {
	out := make([]SealedSegment, 0, len(entries))
	for i, m := range entries {
		seg := SealedSegment{Base: vtop.Offset(m.GetBase()), End: vtop.Offset(m.GetEnd()), Bytes: m.GetBytes(), SealEpoch: vtop.Epoch(m.GetSealEpoch())}
		if seg.Base < 0 || seg.End <= seg.Base || seg.Bytes < 1 || seg.Bytes > MaxSegmentSize || seg.SealEpoch < 1 {
			return nil, refusef(ErrInvalid, "snapshot.segments[%d]: [%d, %d) of %d bytes, epoch %d", i, seg.Base, seg.End, seg.Bytes, seg.SealEpoch)
		}
		if i == 0 && (seg.Base > start || seg.End <= start) {
			return nil, refusef(ErrInvalid, "snapshot.segments[0]: [%d, %d) does not hold the log start %d", seg.Base, seg.End, start)
		}
		if i > 0 && seg.Base != out[i-1].End {
			return nil, refusef(ErrInvalid, "snapshot.segments[%d]: base %d, the one before ends at %d", i, seg.Base, out[i-1].End)
		}
		if len(m.GetRoot()) != len(seg.Root) {
			return nil, refusef(ErrInvalid, "snapshot.segments[%d].root: %d bytes, want %d", i, len(m.GetRoot()), len(seg.Root))
		}
		copy(seg.Root[:], m.GetRoot())
		out = append(out, seg)
	}
	last := start
	if len(out) > 0 {
		last = out[len(out)-1].End
	}
	if last != end {
		return nil, refusef(ErrInvalid, "snapshot: sealed end %d, its %d segments end at %d", end, len(out), last)
	}
	return out, nil
}

// SnapshotTo is the reverse of SnapshotFrom.
func SnapshotTo(s *Snapshot) *peerpb.Snapshot {
	m := &peerpb.Snapshot{
		Epoch: int32(s.Epoch), ReplicaId: uint64(s.Replica), LogStart: int64(s.LogStart), SealedEnd: int64(s.SealedEnd),
		HighWatermark: int64(s.HighWatermark), LogEnd: int64(s.LogEnd), ConfigVersion: s.ConfigVersion,
		Pin: s.Pin, PinIdleMs: s.PinIdle.Milliseconds(), Producers: s.Producers,
		Segments: make([]*peerpb.SealedSegment, len(s.Segments)),
	}
	for i, seg := range s.Segments {
		root := seg.Root
		m.Segments[i] = &peerpb.SealedSegment{Base: int64(seg.Base), End: int64(seg.End), Bytes: seg.Bytes, Root: root[:], SealEpoch: int32(seg.SealEpoch)}
	}
	return m
}
