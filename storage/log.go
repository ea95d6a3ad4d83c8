package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/iolock"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Log is one replica of one range. All methods may be called by many goroutines at once.
//
// Always: base ≤ start ≤ end and durable ≤ end, where base is the base of the first segment (checked by
// checkLocked in tests). Every record in [durable, end) is in chunks; every record below durable is in a file.
type Log struct {
	// Set once.
	store     *Store
	rng       vtop.Range
	replicaID vtop.ReplicaID
	dir       string
	log       hclog.Logger

	// opMu orders the operations that change files other than by appending: cut, reset, reopen, retention, seal.
	// It is held across I/O, and taken before the lease cell and mu.
	opMu iolock.Mutex

	// identity is the file of the replica's identity as it was read last. Under opMu.
	identity vfs.Info

	// mu is the append lock. Memory only: nobody holds it across I/O or a wait.
	mu sync.Mutex
	// The rest is under mu.

	state  State
	reason string
	// shut is true once the store was closed or the replica deleted.
	shut bool
	// neverOpened is true while recovery has not succeeded once, for errors of the disk.
	neverOpened bool
	// gate, if set, is the error with which appends are refused while an operation has the log for itself.
	gate error
	// failure is the error of the disk under StateFailed; syncFailed says that the tail's file may not be synced again;
	// failures counts how often it was entered.
	failure    error
	syncFailed bool
	failures   uint64
	// ledEpoch is the last epoch under which offsets were handed out here; bannedEpoch the last one that ended by
	// a failure: an offset is never handed out again in its epoch.
	ledEpoch, bannedEpoch vtop.Epoch
	promised              vtop.Epoch
	// generation counts cuts, resets and reopenings: what was read from the log before is void after.
	generation uint64

	start, end, durable vtop.Offset
	// segs are the segments in order; the last is the tail. Never empty while the log is open.
	segs []*segment
	// bytes is the size of all segments.
	bytes     int64
	runs      []vtop.EpochRun
	producers *producerTable
	segLimit  int64
	// tailSince is the leader's clock when Roll first saw the tail with records.
	tailSince time.Time
	// computed is the manifest that was computed last, until its segment is sealed.
	computed *manifest.Manifest
	// pendingReset is a reset that is not yet known to be on disk.
	pendingReset *resetPlan

	// chunks is the write buffer: what is not yet durable, in order. buffered is its size.
	chunks   []*chunk
	buffered int64
	// closing are the closed segments whose files the flusher has not finished yet.
	closing []*segment
	// undone are empty tails that were given up, and whose files the flusher has not removed yet.
	undone    []*segment
	flusherOn bool
	// changed is closed at the next advance, failure or end of the flusher; nil while nobody waits.
	changed   chan struct{}
	onDurable func(end vtop.Offset, err error)
	// marked is the durable mark that the journal has.
	marked vtop.Offset
	// suspect is where recovery found bytes that were neither records nor zeros; -1 if the log ended cleanly.
	suspect vtop.Offset
	// unmarked is true if the journal had no durable mark for this replica when it was opened.
	unmarked bool
	hints    readHints
	zero     zeroState
}

// Range returns the range.
func (l *Log) Range() vtop.Range { return l.rng }

// ReplicaID returns the replica id that the directory bears.
func (l *Log) ReplicaID() vtop.ReplicaID { return l.replicaID }

// Start returns the log start: no client is served anything below.
func (l *Log) Start() vtop.Offset { l.mu.Lock(); defer l.mu.Unlock(); return l.start }

// End returns the log end: the offset that the next record will have, synced or not.
func (l *Log) End() vtop.Offset { l.mu.Lock(); defer l.mu.Unlock(); return l.end }

// Durable returns the offset below which everything was synced by this replica.
func (l *Log) Durable() vtop.Offset { l.mu.Lock(); defer l.mu.Unlock(); return l.durable }

// Promised returns the highest epoch that the replica has promised or is just promising; NoEpoch if none.
func (l *Log) Promised() vtop.Epoch { l.mu.Lock(); defer l.mu.Unlock(); return l.promised }

// Runs returns the epochs of the local log in order, from the first segment's base; a copy. Together with End it
// is what EpochTable.Cut wants. Whoever tells it to others flushes first (I4).
func (l *Log) Runs() []vtop.EpochRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]vtop.EpochRun(nil), l.runs...)
}

// LastEpoch returns the epoch of the last record, NoEpoch if the log has none.
func (l *Log) LastEpoch() vtop.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastEpochLocked()
}

func (l *Log) lastEpochLocked() vtop.Epoch {
	if n := len(l.runs); n > 0 {
		return l.runs[n-1].Epoch
	}
	return vtop.NoEpoch
}

// Position returns the log end, the durable end and the epoch runs as of one moment.
func (l *Log) Position() (end, durable vtop.Offset, runs []vtop.EpochRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end, l.durable, append([]vtop.EpochRun(nil), l.runs...)
}

// Info describes the replica as of one moment.
func (l *Log) Info() ReplicaInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ReplicaInfo{
		Range: l.rng, ReplicaID: l.replicaID, State: l.state, Reason: l.reason,
		Start: l.start, End: l.end, Durable: l.durable, Promised: l.promised, Bytes: l.bytes,
	}
}

// Err returns nil if the replica may vote, lead and follow (StateHealthy, StateHoles), else an error that is
// vtop.ErrReplicaLost, vtop.ErrStorage (failed: see Reopen) or vtop.ErrDamaged (quarantined), with the reason.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usableLocked()
}

func (l *Log) usableLocked() error {
	if l.shut {
		return fmt.Errorf("range %s: %w", l.rng, vtop.ErrClosed)
	}
	switch l.state {
	case StateHealthy, StateHoles:
		return nil
	case StateFailed:
		return fmt.Errorf("range %s: %w: %w", l.rng, vtop.ErrStorage, l.failure)
	case StateQuarantined:
		return &QuarantineError{Range: l.rng, Reason: l.reason}
	}
	return fmt.Errorf("range %s replica %d: %w: %s", l.rng, l.replicaID, vtop.ErrReplicaLost, l.reason)
}

// OnDurable sets the one function that is told when the durable end has moved, or the log has failed (err is
// vtop.ErrStorage then, and end the durable end). It is called by the flusher, never twice at once for one log,
// outside all locks; a slow one delays this log's next sync only. It is not called for a cut or reset.
func (l *Log) OnDurable(fn func(end vtop.Offset, err error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onDurable = fn
}

// SetSegmentBytes sets the size at which this log's tail is closed by a leader: the topic's segment.bytes. It is
// clamped to 1 KiB … 1 GiB; 0 restores the store's default.
func (l *Log) SetSegmentBytes(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n == 0 {
		n = l.store.opt.SegmentBytes
	}
	l.segLimit = min(max(n, 1<<10), maxSegmentBytes)
}

func (l *Log) tailLocked() *segment { return l.segs[len(l.segs)-1] }

// broadcastLocked wakes whoever waits for this log.
func (l *Log) broadcastLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// waitLocked waits for the next broadcast or the end of ctx. It gives mu up meanwhile.
func (l *Log) waitLocked(ctx context.Context) error {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	changed := l.changed
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
