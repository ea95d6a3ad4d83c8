package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Flush returns nil when everything below the log end of now is durable. If the log fails meanwhile it is
// vtop.ErrStorage, even if it was reopened since; if it is cut or reset meanwhile, vtop.ErrNotReady: what was waited
// for may be gone. Otherwise the cause of ctx.
func (l *Log) Flush(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	target, generation, failures := l.end, l.generation, l.failures
	for {
		if err := l.usableLocked(); err != nil {
			return err
		}
		if l.failures != failures {
			return fmt.Errorf("range %s: %w: the log has failed and was reopened", l.rng, vtop.ErrStorage)
		}
		if l.generation != generation {
			return fmt.Errorf("range %s: %w: the log was cut meanwhile", l.rng, vtop.ErrNotReady)
		}
		if l.durable >= target {
			return nil
		}
		l.wakeFlusherLocked()
		if err := l.waitLocked(ctx); err != nil {
			return err
		}
	}
}

// wakeFlusherLocked starts the flusher unless it runs. It runs only while there is work, so that an idle range has
// no goroutine.
func (l *Log) wakeFlusherLocked() {
	if l.flusherOn || l.state == StateFailed || len(l.chunks) == 0 && len(l.closing) == 0 {
		return
	}
	l.flusherOn = true
	l.store.flushers.Add(1)
	go l.runFlusher()
}

// flushJob is what one round of the flusher writes: everything that had arrived (group commit). The slices alias
// nothing that changes meanwhile.
type flushJob struct {
	chunks  []*chunk
	closing []*segment
	undone  []*segment
	end     vtop.Offset
	bytes   int64
	// zeroSeg gets zeros bytes of zeros behind its data.
	zeroSeg *segment
	zeros   int64
}

// runFlusher writes and syncs until nothing is left. It holds no lock while it does.
func (l *Log) runFlusher() {
	defer l.store.flushers.Done()
	var job flushJob
	for l.takeJob(&job) {
		l.store.ioSlots <- struct{}{}
		err := l.writeOut(&job)
		<-l.store.ioSlots
		l.finishJob(&job, err)
	}
}

// takeJob takes all that waits; false ends the flusher.
func (l *Log) takeJob(job *flushJob) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.chunks) == 0 && len(l.closing) == 0 || l.state == StateFailed {
		if l.state == StateFailed || !l.zeroWhileIdleLocked() {
			l.flusherOn = false
			l.broadcastLocked()
			return false
		}
	}
	job.chunks = append(job.chunks[:0], l.chunks...)
	job.closing = append(job.closing[:0], l.closing...)
	job.undone = append(job.undone[:0], l.undone...)
	job.end, job.bytes = l.durable, 0
	for _, c := range job.chunks {
		c.taken = true
		job.end = c.end
		job.bytes += int64(len(c.data))
	}
	l.settleZerosLocked(0)
	job.zeroSeg, job.zeros = l.zero.seg, 0
	if job.bytes > 0 && l.zero.ahead == l.zero.seg.size { // never an idle moment, and no zeros left
		job.zeros = l.nextZeroStepLocked(min(l.store.opt.ZeroStepBytes, maxZeroInLine))
	}
	return true
}

// syncError marks an error after which the file may never be synced again.
type syncError struct{ err error }

func (e *syncError) Error() string { return e.err.Error() }
func (e *syncError) Unwrap() error { return e.err }

// writeOut writes the chunks of each segment in order, finishes the closed ones, and syncs. A segment's file is
// created only after all before it are durable and without slack: recovery relies on that.
func (l *Log) writeOut(job *flushJob) error {
	if err := l.removeUndone(job.undone); err != nil {
		return err
	}
	chunks, closing := job.chunks, job.closing
	for len(chunks) > 0 || len(closing) > 0 {
		seg := (*segment)(nil)
		if len(closing) > 0 {
			seg = closing[0]
		} else {
			seg = chunks[0].seg
		}
		n := 0
		for n < len(chunks) && chunks[n].seg == seg {
			n++
		}
		if err := l.writeSegment(seg, chunks[:n], job); err != nil {
			return err
		}
		chunks = chunks[n:]
		if len(closing) > 0 {
			if err := l.finishSegment(seg); err != nil {
				return err
			}
			closing = closing[1:]
		}
	}
	return nil
}

// removeUndone removes the files of empty tails that were given up, durably.
func (l *Log) removeUndone(undone []*segment) error {
	l.store.files.retire(undone...)
	for _, seg := range undone {
		if err := l.store.fs.Remove(seg.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", seg.path, err)
		}
	}
	if len(undone) == 0 {
		return nil
	}
	if err := l.store.fs.SyncDir(l.dir); err != nil {
		return &syncError{fmt.Errorf("sync directory %s: %w", l.dir, err)}
	}
	return nil
}

// writeSegment writes chunks to a segment's file and syncs it.
func (l *Log) writeSegment(seg *segment, chunks []*chunk, job *flushJob) error {
	if len(chunks) == 0 && seg.exists {
		return nil
	}
	h, err := l.store.files.acquire(seg, !seg.exists, false)
	if err != nil {
		return fmt.Errorf("open %s: %w", seg.path, err)
	}
	defer l.store.files.release(h)
	created := !seg.exists
	seg.exists = true
	l.store.gather.enter()
	if err := l.writeChunks(h.file, seg, chunks, job); err != nil {
		l.store.gather.leave()
		return err
	}
	if err := l.store.gather.sync(h); err != nil {
		return &syncError{fmt.Errorf("sync %s: %w", seg.path, err)}
	}
	if created {
		if err := l.store.fs.SyncDir(l.dir); err != nil {
			return &syncError{fmt.Errorf("sync directory of %s: %w", seg.path, err)}
		}
	}
	return nil
}

// writeChunks writes chunks to a segment's file, and zeros behind them if the job says so.
func (l *Log) writeChunks(f vfs.File, seg *segment, chunks []*chunk, job *flushJob) error {
	var end int64
	for _, c := range chunks {
		if _, err := f.WriteAt(c.data, c.pos); err != nil {
			return fmt.Errorf("write %s: %w", seg.path, err)
		}
		end = c.pos + int64(len(c.data))
	}
	if seg == job.zeroSeg && job.zeros > 0 && len(chunks) > 0 {
		l.zeroInLine(f, end, job.zeros)
	}
	return nil
}

// finishSegment cuts the slack off a closed segment and writes what recovery would otherwise have to compute: the
// producer state at its end, and its index. Its records are durable.
func (l *Log) finishSegment(seg *segment) error {
	h, err := l.store.files.acquire(seg, false, false)
	if err != nil {
		return fmt.Errorf("open %s: %w", seg.path, err)
	}
	defer l.store.files.release(h)
	l.mu.Lock()
	size, end, snapshot := seg.size, seg.end, seg.snapshot
	entries := seg.index.encode(seg.base, size)
	l.mu.Unlock()
	if now, err := h.file.Size(); err != nil {
		return fmt.Errorf("size of %s: %w", seg.path, err)
	} else if now != size {
		if err := h.file.Truncate(size); err != nil {
			return fmt.Errorf("truncate %s: %w", seg.path, err)
		}
		if err := h.file.Sync(); err != nil {
			return &syncError{fmt.Errorf("sync %s: %w", seg.path, err)}
		}
	}
	if err := vfs.WriteFileAtomic(l.store.fs, l.path(end, producerSuffix), encodeSnapshot(l.rng, end, snapshot)); err != nil {
		return err
	}
	l.writeIndex(seg.base, entries)
	return nil
}

// writeIndex stores an index, without a sync: it can be rebuilt.
func (l *Log) writeIndex(base vtop.Offset, encoded []byte) {
	name := l.path(base, indexSuffix)
	f, err := l.store.fs.Create(name)
	if err == nil {
		_, err = f.WriteAt(encoded, 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		l.log.Warn("index is not written and will be rebuilt when it is needed", "file", name, "error", err)
		if err := l.store.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.log.Warn("index is not removed", "file", name, "error", err)
		}
	}
}

// finishJob publishes what a round has done, or fails the log, and tells whoever waits.
func (l *Log) finishJob(job *flushJob, err error) {
	l.mu.Lock()
	if err != nil {
		l.failLocked(err)
		err = l.usableLocked()
	} else {
		for _, c := range job.chunks {
			c.seg.durable = c.pos + int64(len(c.data))
		}
		for _, seg := range job.closing {
			seg.finished, seg.snapshot = true, nil
		}
		l.closing = l.closing[:copy(l.closing, l.closing[len(job.closing):])]
		l.undone = l.undone[:copy(l.undone, l.undone[len(job.undone):])]
		l.settleZerosLocked(job.bytes)
		l.dropChunksLocked(len(job.chunks))
		l.durable = job.end
	}
	end, tell := l.durable, l.onDurable
	l.broadcastLocked()
	l.mu.Unlock()
	clear(job.chunks)
	if err != nil {
		l.logFailure(end, err)
	}
	if tell != nil && (err != nil || len(job.chunks) > 0) {
		tell(end, err)
	}
}

// fail is failLocked, and tells whoever listens.
func (l *Log) fail(err error) {
	l.mu.Lock()
	l.failLocked(err)
	err = l.usableLocked()
	end, tell := l.durable, l.onDurable
	l.mu.Unlock()
	l.logFailure(end, err)
	if tell != nil {
		tell(end, err)
	}
}

// logFailure is for after mu was given up: a log line may block, and appenders wait for mu under the lease cell (I4).
func (l *Log) logFailure(durable vtop.Offset, err error) {
	l.log.Error("the log has failed, its epoch ends here", "durable", durable, "error", err)
}

// failLocked ends the epoch of the log after an error of the disk: nothing more is written, what was not durable
// is given up, whoever waits is told. Reopen is the way back.
func (l *Log) failLocked(err error) {
	var sync *syncError
	if l.failure = err; l.state != StateLost && l.state != StateQuarantined { // those stay
		l.state, l.reason = StateFailed, "the disk failed: "+err.Error()
	}
	l.syncFailed = l.syncFailed || errors.As(err, &sync)
	l.failures++
	l.bannedEpoch = max(l.bannedEpoch, l.ledEpoch)
	l.dropChunksLocked(len(l.chunks))
	l.broadcastLocked()
}
