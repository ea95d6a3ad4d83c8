package storage

import (
	"errors"

	"github.com/vtop-log/vtop"
)

// AdoptSegment names one segment of an Adoption.
type AdoptSegment struct {
	Base, End vtop.Offset
	Bytes     int64
	Root      [32]byte
}

// Adoption says what a new replica is to begin with.
type Adoption struct {
	// Base is where the log begins: the base of the first segment; where none is sealed yet, the base of the leader's
	// first one. Producers is the encoded producer state there (Pinned has both, and so has Log.ResetPoint).
	Base      vtop.Offset
	Producers []byte
	// LogStart is the leader's: from Base to the end of the last segment, or Base if there is none.
	LogStart vtop.Offset
	// Segments are in order and continuous from Base, each whole in the staging. Other staged segments are dropped.
	Segments []AdoptSegment
	// Replaces, if not 0, is a replica of the range here that may be set aside though it is not lost.
	Replaces vtop.ReplicaID
}

// Adopt makes the staging of a range the replica id of it, in one step (I11): segments, epochs, producer state, log start.
// Before its commit point a crash leaves the staging and whatever replica was there; after it, the new replica. A
// replica that was there is set aside in the same step; its promise is taken over (I6), and the durable mark of the new one
// is the adopted end. The log is returned open, with its end at the end of the last segment. Where the disk fails on the
// way, the same call goes on later; so does the next start.
//
// It is refused, with nothing changed, if a replica is there that is neither lost nor named by Replaces, or whose id is
// not below; if the segments are not continuous or not whole (vtop.ErrNotReady); if Producers does not lead to the first
// segment's manifest (vtop.ErrDamaged). Adopting the replica that is there already returns it.
func (s *Store) Adopt(r vtop.Range, id vtop.ReplicaID, a Adoption) (*Log, error) {
	return nil, errors.ErrUnsupported
}

// AdoptEmpty is Adopt for a range of which nothing is sealed yet.
func (s *Store) AdoptEmpty(r vtop.Range, id vtop.ReplicaID, base vtop.Offset, producers []byte) (*Log, error) {
	return s.Adopt(r, id, Adoption{Base: base, LogStart: base, Producers: producers})
}
