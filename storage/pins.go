package storage

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
)

// PinID names one pin. It is never given out again, by no later life of the data directory either. 0 is no pin.
type PinID uint64

// ErrPinGone says that a pin was released, expired, was ended for lack of space, or died with its process.
var ErrPinGone = errors.New("pin is gone")

// PinGoneError says which pin is gone and why. It is an ErrPinGone.
type PinGoneError struct {
	ID PinID
	// Cause is a phrase such as "unused for 2m0s"; it is kept for the last pins that ended.
	Cause string
}

// Error implements error.
func (e *PinGoneError) Error() string { return fmt.Sprintf("pin %d is gone: %s", e.ID, e.Cause) }

// Is makes errors.Is(err, ErrPinGone) true.
func (e *PinGoneError) Is(target error) bool { return target == ErrPinGone }

// PinLimitError says which cap of Options a pin would exceed. It is a vtop.ErrOverloaded: retry when others have ended.
type PinLimitError struct {
	// What is "pins", "files" or "bytes"; Held is what all pins have of it, Asked what is wanted in addition.
	What               string
	Held, Asked, Limit int64
}

// Error implements error.
func (e *PinLimitError) Error() string {
	return fmt.Sprintf("pin: %d %s asked, %d are held, at most %d may: wait for other transfers to end", e.Asked, e.What, e.Held, e.Limit)
}

// Is makes errors.Is(err, vtop.ErrOverloaded) true.
func (e *PinLimitError) Is(target error) bool { return target == vtop.ErrOverloaded }

// PinSpec says what to pin.
type PinSpec struct {
	Range vtop.Range
	// ReplicaID, if not 0, is the replica that is meant; another one is vtop.ErrFenced.
	ReplicaID vtop.ReplicaID
	// Have are bases of segments that the destination has whole: they are listed, not pinned.
	Have []vtop.Offset
	// Growing lets the pin take every segment that is sealed later too, at the moment it is sealed and before retention
	// can see it, until SettlePin.
	Growing bool
	// Job is the repair that asks; shown by Pins.
	Job uint64
}

// Pinned is a pin, and the snapshot of sealed segments that it holds.
type Pinned struct {
	// ID is 0 if there was nothing to hold.
	ID        PinID
	ReplicaID vtop.ReplicaID
	// Segments are all sealed segments of the replica in order, continuous; those of PinSpec.Have and holes are listed
	// and not held.
	Segments []SegmentInfo
	// Base is the base of the first segment, or of the log if none is sealed; Producers is the encoded producer state
	// there: what an Adoption wants.
	Base      vtop.Offset
	Producers []byte
	// Idle is the time without use after which the pin ends by itself.
	Idle time.Duration
}

// PinInfo describes a pin as operators see it.
type PinInfo struct {
	ID        PinID
	Range     vtop.Range
	ReplicaID vtop.ReplicaID
	Job       uint64
	// Segments, Files and Bytes are what it holds open. Unlinked is the part of Bytes that only this and other pins still
	// keep on the disk, since retention or a deletion took the names.
	Segments, Files int
	Bytes, Unlinked int64
	// Age and Idle count from its beginning and its last use; at Limit of Idle it ends by itself.
	Age, Idle, Limit time.Duration
	Growing          bool
}

// Pin holds the sealed segments of a range open, so that their bytes stay readable by OpenSealed whatever retention
// unlinks meanwhile. It holds files and not retention: nothing waits for it. It ends with Unpin, after Options.PinIdle
// without use, when the disk is full and it keeps unlinked bytes, or with the process, which leaves nothing on disk.
//
// A leader that seals for a repair calls Pin with Growing, CloseTail, and then SettlePin with the closed end until the segment
// is catalogued and sealed: no retention can come between.
//
// Errors: *PinLimitError, vtop.ErrUnknownRange, ErrFenced (another replica id), ErrReplicaLost, ErrDamaged (quarantined, or
// the producer state at the base cannot be read), ErrStorage.
func (s *Store) Pin(spec PinSpec) (Pinned, error) {
	l := s.Get(spec.Range)
	if l == nil {
		return Pinned{}, fmt.Errorf("pin: %w: no replica of range %s here", vtop.ErrUnknownRange, spec.Range)
	}
	if spec.ReplicaID != 0 && spec.ReplicaID != l.replicaID {
		return Pinned{}, fmt.Errorf("pin: %w: replica %d of range %s is asked, this is replica %d", vtop.ErrFenced, spec.ReplicaID, spec.Range, l.replicaID)
	}
	l.opMu.Lock() // against retention
	defer l.opMu.Unlock()
	base, producers, err := l.resetPoint()
	if err != nil {
		return Pinned{}, fmt.Errorf("pin: %w", err)
	}
	out := Pinned{ReplicaID: l.replicaID, Base: base, Producers: producers, Idle: s.opt.PinIdle}
	var held []SegmentInfo
	out.Segments = l.sealedPrefix()
	for _, seg := range out.Segments {
		if seg.Hole == "" && !slices.Contains(spec.Have, seg.Base) {
			held = append(held, seg)
		}
	}
	if len(held) == 0 && !spec.Growing {
		return out, nil
	}
	p, err := s.pins.begin(s, l, spec, out)
	if err != nil {
		return Pinned{}, err
	}
	for _, seg := range held {
		if err := s.pins.hold(l, p, seg); err != nil {
			s.pins.end(p, "it could not be made")
			return Pinned{}, err
		}
	}
	out.ID = p.id
	return out, nil
}

// SettlePin bounds a growing pin at a segment end, the first time it is called: what it took beyond is let go, and from then
// on nothing beyond is taken. When all below end is sealed, the pin grows no more and the answer lists the sealed segments up to
// there. Until then it is vtop.ErrNotReady, with the pin's id: ask again. An end is not raised by a later call. Other errors
// end the pin: *PinLimitError or vtop.ErrStorage, if a segment could not be taken when it was sealed; ErrPinGone.
func (s *Store) SettlePin(id PinID, end vtop.Offset) (Pinned, error) {
	p, err := s.pins.touch(id)
	if err != nil {
		return Pinned{}, err
	}
	return s.pins.settle(p, end)
}

// TouchPin starts the idle time of a pin anew. Reads through it do so by themselves. ErrPinGone.
func (s *Store) TouchPin(id PinID) error {
	_, err := s.pins.touch(id)
	return err
}

// Unpin ends a pin; what is being read through it is told. Releasing one that is gone is fine: released is false.
func (s *Store) Unpin(id PinID) (released bool) {
	p, err := s.pins.touch(id)
	return err == nil && s.pins.end(p, "released")
}

// Pins describes all pins, the oldest first.
func (s *Store) Pins() []PinInfo {
	var out []PinInfo
	for _, p := range s.pins.all() {
		out = append(out, s.pinInfo(p))
	}
	slices.SortFunc(out, func(a, b PinInfo) int { return int(b.Age - a.Age) })
	return out
}

func (s *Store) pinInfo(p *pin) PinInfo {
	present := map[vtop.Offset]bool{}
	if s.Get(p.log.rng) == p.log {
		for _, seg := range p.log.Segments() {
			present[seg.Base] = true
		}
	}
	return s.pins.info(p, present)
}

// ExpirePins ends the pins that were not used for Options.PinIdle and, while the disk is under its reserve, the one that
// keeps most unlinked bytes on it. The store calls it with every Tick.
func (s *Store) ExpirePins() {
	full := s.Admits() != nil
	var most *pin
	var kept int64
	for _, p := range s.pins.all() {
		info := s.pinInfo(p)
		if info.Idle >= s.opt.PinIdle {
			s.endPin(p, fmt.Sprintf("it was not used for %s", s.opt.PinIdle))
		} else if info.Unlinked > kept {
			most, kept = p, info.Unlinked
		}
	}
	if full && most != nil {
		s.endPin(most, fmt.Sprintf("the disk is nearly full, and it kept %d bytes that retention had unlinked", kept))
	}
}

func (s *Store) endPin(p *pin, cause string) {
	if s.pins.end(p, cause) {
		s.log.Warn("pin ended", "pin", uint64(p.id), "range", p.log.rng.String(), "job", p.job, "reason", cause)
	}
}
