package storage

import (
	"context"
	"errors"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/vfs"
)

var errTodo = errors.New("not written yet")

type producerTable struct{}
type chunk struct{}
type readHints struct{}
type zeroState struct{}
type index struct{}
type handle struct{}

func newIndex(int64) *index { return nil }

// Store is one data directory. All methods may be called by many goroutines at once.
type Store struct{ opt Options }

// Identity is who the data directory is.
type Identity struct {
	// Storage was made once, with the directory.
	Storage vtop.StorageID
	// Cluster is zero until SetCluster.
	Cluster vtop.ClusterID
	// Incarnation was counted up, durably, when the store was opened (I5).
	Incarnation vtop.Incarnation
}

// Open locks the data directory, makes it if it is missing, counts the incarnation up, reads the journal and
// recovers every replica. It fails only for what concerns the whole directory (lock, identity, journal cannot be
// written); a damaged replica is opened as StateLost and the others start.
func Open(fs vfs.FS, dir string, opt Options) (*Store, error) { return nil, errTodo }

// Close refuses new appends, flushes every log, writes the durable marks and gives the lock up.
func (s *Store) Close() error { return errTodo }

// Identity returns who this data directory is. Durable.
func (s *Store) Identity() Identity { return Identity{} }

// SetCluster writes the cluster id, once: another one than before is refused. Durable when it returns nil.
func (s *Store) SetCluster(id vtop.ClusterID) error { return errTodo }

// SetIncarnation raises the incarnation, when the metadata knows a higher one than the disk: the disk is an old
// copy. The caller then calls LoseAll. Durable when it returns nil; refuses to go down.
func (s *Store) SetIncarnation(n vtop.Incarnation) error { return errTodo }

// LoseAll marks every replica lost (I10), durably: the data directory may have forgotten.
func (s *Store) LoseAll(reason string) error { return errTodo }

// Create makes the directory of a new replica, empty, with its log beginning at start. All is durable when it
// returns nil. If the replica is there under the same id it is returned; under another id it is refused:
// see SetAside. Only for a range that never started an epoch or for a new replica id (DESIGN: I10).
func (s *Store) Create(r vtop.Range, id vtop.ReplicaID, start vtop.Offset) (*Log, error) { return nil, errTodo }

// CreateAll is Create for many replicas at once, all beginning at offset 0, at the price of a few syncs. The
// errors are joined; those that could be made are.
func (s *Store) CreateAll(replicas []Promise) error { return errTodo }

// Get returns the replica of a range, also a lost one (see Log.Err), or nil if there is none.
func (s *Store) Get(r vtop.Range) *Log { return nil }

// List describes all replicas, also those of which only the journal knows (StateLost), ordered by range.
func (s *Store) List() []ReplicaInfo { return nil }

// Delete removes the replica of a range for ever. Only for a tombstone that was committed (E4).
func (s *Store) Delete(r vtop.Range) error { return errTodo }

// SetAside moves the directory of a replica to aside/, where nothing touches it any more, and forgets it.
func (s *Store) SetAside(r vtop.Range, why string) error { return errTodo }

// Promise makes promises durable with one sync for all (I6). It returns one error for each promise, nil if it is
// durable: a *PromiseError if a higher one was made before, vtop.ErrUnknownRange, vtop.ErrReplicaLost (also for
// another replica id), vtop.ErrStorage if the journal could not be written. The same promise again is fine. From
// the moment of the call no append of a lower epoch is admitted, whatever is returned; so fence by Promise, then
// Flush, then Position.
func (s *Store) Promise(promises []Promise) []error { return nil }

// Admits returns nil, or vtop.ErrNoSpace while free space is under the reserve. Cheap: memory only.
func (s *Store) Admits() error { return errTodo }

// Probe proves the disk by a small write and sync of a file of its own, and looks at the free space. It returns
// when the disk has answered, or ctx has ended (the write goes on then, and the next Probe waits for it).
func (s *Store) Probe(ctx context.Context) error { return errTodo }

// Tick writes the durable marks of all logs that moved, with one sync, and looks at the free space. The store
// calls it every TickInterval.
func (s *Store) Tick() error { return errTodo }

// AppendLead appends one batch of a client as the leader under epoch e. Memory only: it returns before anything is
// written; OnDurable tells when the batch is synced. The caller has checked b (batch.Check); b is stamped in
// place with base offset and epoch, then copied. A batch that an idempotent producer sent before is not appended:
// dup names where it stands. Errors: vtop.ErrFenced, ErrNoSpace, ErrOverloaded, ErrNotReady (an operation has the
// log), ErrStorage, ErrReplicaLost, ErrOutOfOrderSequence, ErrStaleProducerEpoch, ErrBatchTooLarge.
func (l *Log) AppendLead(e vtop.Epoch, b batch.Batch) (base vtop.Offset, dup *Duplicate, err error) {
	return 0, nil, errTodo
}

// AppendFollow appends whole batches as they came from the leader of epoch e (mode FenceFollow), or from the voter
// with the longest log (FencePromote). All of them belong to the segment that begins at segmentBase: if that is the
// log end, the tail is closed there first. They are verified before they are believed: CRC32C, continuity of
// offset and epoch. Batches below the log end are skipped if their epochs agree. It returns the log end. Memory
// only but for the checksums. Errors as AppendLead, and *GapError, *BoundaryError, *DivergedError, vtop.ErrCorruptBatch.
func (l *Log) AppendFollow(e vtop.Epoch, mode vtop.FenceMode, segmentBase vtop.Offset, batches []byte) (end vtop.Offset, err error) {
	return 0, errTodo
}

// Flush returns when everything below the log end of now is durable, or vtop.ErrStorage, or the cause of ctx.
func (l *Log) Flush(ctx context.Context) error { return errTodo }

// Read returns whole batches from the one that holds offset from, all of one segment, that end at or below limit
// and the log end: as many as fit into maxBytes, but at least one. The bytes are in buf if it is large enough,
// else in a new buffer; next is the offset to read from next, and segBase the base of their segment. No bytes and
// no error means that nothing is below limit yet. from below the log start or above the log end is
// vtop.ErrOffsetOutOfRange; a batch that is not what was written is vtop.ErrDamaged and never returned (I9).
func (l *Log) Read(from vtop.Offset, maxBytes int, limit vtop.Offset, buf []byte) (batches []byte, next, segBase vtop.Offset, err error) {
	return nil, 0, 0, errTodo
}

// ReadPeer is Read for a peer: it also serves what is below the log start as long as the segment is there, since
// a transfer begins at a batch and a segment, not at the log start (F4).
func (l *Log) ReadPeer(from vtop.Offset, maxBytes int, limit vtop.Offset, buf []byte) (batches []byte, next, segBase vtop.Offset, err error) {
	return nil, 0, 0, errTodo
}

// OffsetForTime returns the first record below limit, at or above the log start, whose timestamp is ts (ms) or
// later; found is false if there is none.
func (l *Log) OffsetForTime(ts int64, limit vtop.Offset) (offset vtop.Offset, timestamp int64, found bool, err error) {
	return 0, 0, false, errTodo
}

// Reconcile cuts the log where the epoch table proves divergence (I8), under the lease of epoch e (FenceCut). It
// waits for the flusher to drain first; the file is truncated, durably, and all derived state rebuilt when it
// returns. A cut below floor or inside a sealed segment, and a record of an epoch above e, is a *QuarantineError
// and changes nothing on disk.
func (l *Log) Reconcile(ctx context.Context, e vtop.Epoch, table vtop.EpochTable, floor vtop.Offset) (Cut, error) {
	return Cut{}, errTodo
}

// Verify holds the log against the committed floor, once the metadata has caught up and before the replica
// answers its first fence.
func (l *Log) Verify(floor vtop.Offset) error { return errTodo }

// ResetTo empties the log and begins it anew at base, the base of a segment of the leader, with the producer state
// there (see ResetPoint); under the lease of epoch e (FenceCut). Refused unless the log end is below base: that is
// the proof that the log is too old (B8). One crash-safe step; replica id and promise stay.
func (l *Log) ResetTo(ctx context.Context, e vtop.Epoch, base vtop.Offset, producers []byte) error { return errTodo }

// ResetPoint returns where a follower that is too old begins: the base of the first segment, and the encoded
// producer state there.
func (l *Log) ResetPoint() (base vtop.Offset, producers []byte, err error) { return 0, nil, errTodo }

// SetLogStart takes the log start over from the applied metadata. It never goes down. Segments wholly below it
// that are sealed are unlinked; readers that have them open finish. start above the log end is refused: the log
// must be reset.
func (l *Log) SetLogStart(start vtop.Offset) error { return errTodo }

// Roll closes the tail under the lease of epoch e (FenceLead) if it has records and is older than maxAge by the
// leader's clock now (0: whatever its age). The age counts from the first Roll that saw the records.
func (l *Log) Roll(e vtop.Epoch, now time.Time, maxAge time.Duration) (rolled bool, err error) {
	return false, errTodo
}

// CloseAt closes the tail at end if that is the log end: the catalogue has a segment that ends there. It does
// nothing if a segment already begins at end.
func (l *Log) CloseAt(end vtop.Offset) error { return errTodo }

// Closed lists the segments that are closed, wholly durable and not sealed, in order.
func (l *Log) Closed() []SegmentInfo { return nil }

// Root reads a closed segment and returns the root and size that its manifest will have. Slow; takes no lock
// while it reads.
func (l *Log) Root(base vtop.Offset) (root [32]byte, bytes int64, err error) { return root, 0, errTodo }

// Seal publishes the manifest of a closed segment that the catalogue has with root want. Another root is damage
// (I9): vtop.ErrDamaged, and the segment becomes a hole. Sealing again is fine.
func (l *Log) Seal(base vtop.Offset, want [32]byte) error { return errTodo }

// VerifySegment reads a sealed segment whole and checks it against its manifest; damage makes it a hole.
func (l *Log) VerifySegment(ctx context.Context, base vtop.Offset) error { return errTodo }

// Reopen is the way back from StateFailed: it drops the file handles, drops all that was not durable, and recovers
// the log from disk. Epochs under which this process handed out offsets before the failure stay refused.
func (l *Log) Reopen() error { return errTodo }
