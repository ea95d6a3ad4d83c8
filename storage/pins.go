package storage

import (
	"errors"
	"fmt"
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
	// Age and Idle count from its beginning and its last use.
	Age, Idle time.Duration
	Growing   bool
}

// Pin holds the sealed segments of a range open, so that their bytes stay readable by OpenSealed whatever retention
// unlinks meanwhile. It holds files and not retention: nothing waits for it. It ends with Unpin, after Options.PinIdle
// without use, when the disk is full and it keeps unlinked bytes, or with the process, which leaves nothing on disk.
//
// A leader that seals for a repair calls Pin with Growing, CloseTail, waits until the segment is catalogued and sealed,
// and calls SettlePin: no retention can come between.
//
// Errors: *PinLimitError, vtop.ErrUnknownRange, ErrFenced (another replica id), ErrReplicaLost, ErrDamaged (quarantined, or
// the producer state at the base cannot be read), ErrStorage.
func (s *Store) Pin(spec PinSpec) (Pinned, error) { return Pinned{}, errors.ErrUnsupported }

// SettlePin ends the growing of a pin at a segment end: what it took beyond is let go, and the answer lists the sealed
// segments up to there. vtop.ErrNotReady, with the pin as it was, if not all below end is sealed yet; a *PinLimitError, and
// the pin is gone, if a segment could not be taken because of the caps; ErrPinGone.
func (s *Store) SettlePin(id PinID, end vtop.Offset) (Pinned, error) {
	return Pinned{}, errors.ErrUnsupported
}

// TouchPin starts the idle time of a pin anew. Reads through it do so by themselves. ErrPinGone.
func (s *Store) TouchPin(id PinID) error { return errors.ErrUnsupported }

// Unpin ends a pin; what is being read through it ends first. Releasing one that is gone is fine: released is false.
func (s *Store) Unpin(id PinID) (released bool) { return false }

// Pins describes all pins, the oldest first.
func (s *Store) Pins() []PinInfo { return nil }
