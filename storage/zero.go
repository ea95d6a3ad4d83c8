package storage

import (
	"fmt"
	"sync/atomic"

	"github.com/vtop-log/vtop/storage/vfs"
)

// A sync of bytes that overwrite written ones needs no change to the file's own metadata, which takes a third to a
// half off its time. So a tail is zeroed ahead, in steps that follow the write rate: nothing until a tail has been
// written some times, then from 64 KiB, doubling up to Options.ZeroStepBytes as steps are used up. Zeros are
// written twice, so a log that is written in large pieces, where bandwidth and not the latency of a sync counts,
// is not zeroed. Recovery tells zeros from records: no record batch begins with 12 zero bytes.
const (
	firstZeroStep = 64 << 10
	// zeroAfterFlushes is how many flushes a tail sees before the first step: an idle range gets none.
	zeroAfterFlushes = 4
	// zeroMaxFlush is the average flush in bytes above which zeroing costs more than it gives.
	zeroMaxFlush = 128 << 10
	// zeroPiece is how much is zeroed before the flusher looks again whether somebody waits.
	zeroPiece = 512 << 10
)

// zeroState is where a tail's zeros end and how fast they are used. The flusher alone uses it while it runs, under
// mu or not; others, under mu, only while it does not run.
type zeroState struct {
	seg *segment
	// ahead is the position up to which the file is written.
	ahead int64
	step  int64
	// flushes of this tail, and the moving average of their bytes.
	flushes int
	average int64
	// charged is what this log has taken of the store's bound.
	charged int64
}

// maxZeroInLine bounds a step that is written while somebody waits.
const maxZeroInLine = 1 << 20

// settleZerosLocked follows the tail, gives back what was used of the store's bound, and counts a flush.
func (l *Log) settleZerosLocked(flushed int64) {
	z, tail := &l.zero, l.tailLocked()
	if z.seg != tail {
		z.seg, z.ahead = tail, 0
	}
	z.ahead = max(z.ahead, tail.size)
	if left := z.ahead - tail.size; z.charged > left {
		l.store.zeroAhead.Add(left - z.charged)
		z.charged = left
	}
	if flushed > 0 {
		z.flushes++
		z.average += (flushed - z.average) / 4
	}
}

// forgetZerosLocked is for a tail that was replaced.
func (l *Log) forgetZerosLocked() {
	l.store.zeroAhead.Add(-l.zero.charged)
	l.zero = zeroState{}
}

// nextZeroStepLocked returns how much to zero behind the tail now, at most limit; 0 for nothing. The bytes are
// charged to the store's bound.
func (l *Log) nextZeroStepLocked(limit int64) int64 {
	z, tail := &l.zero, l.tailLocked()
	if z.flushes < zeroAfterFlushes || z.average > zeroMaxFlush || z.ahead-tail.size > z.step/4 {
		return 0
	}
	step := min(max(2*z.step, firstZeroStep), limit, l.segLimit-z.ahead)
	if step <= 0 || l.store.Admits() != nil || !takeBelow(&l.store.zeroAhead, step, l.store.opt.ZeroStoreBytes) {
		return 0
	}
	z.charged += step
	z.step = step
	return step
}

// zeroInLine writes zeros behind the data just written, before the sync that makes both durable. An error is no
// failure of the log: the records are in front of the zeros.
func (l *Log) zeroInLine(f vfs.File, end, step int64) {
	if writeZeros(f, end, step) == nil {
		l.zero.ahead = end + step
	}
}

// zeroWhileIdleLocked zeroes a step ahead of the tail while nobody waits. It gives mu up while it writes and
// returns whether it did: then the caller looks for work again.
func (l *Log) zeroWhileIdleLocked() bool {
	l.settleZerosLocked(0)
	tail, from := l.zero.seg, l.zero.ahead
	if l.gate != nil || !tail.exists {
		return false
	}
	step := l.nextZeroStepLocked(l.store.opt.ZeroStepBytes)
	if step == 0 {
		return false
	}
	l.mu.Unlock()
	done := l.zeroTail(tail, from, step)
	l.mu.Lock()
	if l.zero.ahead = from + done; done < step {
		l.zero.flushes = 0 // interrupted or refused: not again at once
	}
	return true
}

// zeroTail zeroes step bytes of a tail from a position on and syncs them; it stops early when a batch waits.
func (l *Log) zeroTail(tail *segment, from, step int64) (done int64) {
	h, err := l.store.files.acquire(tail, false, false)
	if err != nil {
		return 0
	}
	defer l.store.files.release(h)
	l.store.ioSlots <- struct{}{}
	defer func() { <-l.store.ioSlots }()
	for done < step && !l.hasWork() {
		n := min(step-done, zeroPiece)
		if writeZeros(h.file, from+done, n) != nil {
			break
		}
		done += n
	}
	if done == 0 {
		return 0
	}
	if err := h.file.SyncData(); err != nil {
		l.fail(&syncError{fmt.Errorf("sync %s: %w", tail.path, err)})
		return 0
	}
	return done
}

func (l *Log) hasWork() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.chunks) > 0 || len(l.closing) > 0 || l.gate != nil
}

// zeros is never written to.
var zeros [64 << 10]byte

func writeZeros(f vfs.File, at, n int64) error {
	for n > 0 {
		m, err := f.WriteAt(zeros[:min(n, int64(len(zeros)))], at)
		if err != nil {
			return err
		}
		at, n = at+int64(m), n-int64(m)
	}
	return nil
}

// takeBelow adds n to a counter unless that takes it above limit.
func takeBelow(counter *atomic.Int64, n, limit int64) bool {
	if counter.Add(n) > limit {
		counter.Add(-n)
		return false
	}
	return true
}
