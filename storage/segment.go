package storage

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vtop-log/vtop"
)

// segment is one file of batches. Except where told, its fields are under the log's mu.
type segment struct {
	// base and path are set once.
	base vtop.Offset
	path string

	end  vtop.Offset
	size int64
	// durable is how much of size is synced in the file; the rest is in chunks.
	durable int64
	state   SegmentState
	// root is set when the segment is sealed.
	root [32]byte
	// hole says why a sealed segment is not served.
	hole string
	// finished is true once the flusher has closed the file: synced whole, without slack.
	finished bool
	// exists is true if the file does. Used by the flusher alone while it runs.
	exists bool
	// sealing is true while its manifest is being published: it stays closed.
	sealing bool
	// gone is true once the segment left the log: a reader that still has it must not report damage.
	gone bool
	// snapshot is the producer state at end, encoded when the segment was closed, until the flusher has written it.
	snapshot []byte
	// index is always there for a tail and a closed segment; for a sealed one it lives with the open file.
	index *index

	// handle is guarded by fileCache.mu, as is retired: the segment has none and gets none any more.
	handle  *handle
	retired bool
}

// Names of the files of a replica. The number is the base offset, 20 digits, so that names sort.
const (
	metaName       = "replica"
	logSuffix      = ".log"
	indexSuffix    = ".index"
	manifestSuffix = ".manifest"
	producerSuffix = ".producers"
	holeSuffix     = ".hole"
)

func fileName(base vtop.Offset, suffix string) string { return fmt.Sprintf("%020d%s", base, suffix) }

// parseFileName returns the base offset of a name that fileName gave.
func parseFileName(name, suffix string) (vtop.Offset, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return vtop.Offset(n), err == nil && n >= 0
}

func (l *Log) path(base vtop.Offset, suffix string) string {
	return filepath.Join(l.dir, fileName(base, suffix))
}

func (l *Log) newSegment(base vtop.Offset) *segment {
	return &segment{base: base, end: base, path: l.path(base, logSuffix), index: newIndex(l.store.opt.IndexBytes)}
}

// segmentAtLocked returns the position in segs of the segment that holds offset o; o at the log end gives the
// tail. o is at or above the first base.
func (l *Log) segmentAtLocked(o vtop.Offset) int {
	lo, hi := 0, len(l.segs)-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if l.segs[mid].base <= o {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// Segments lists the segments in order.
func (l *Log) Segments() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]SegmentInfo, 0, len(l.segs))
	for _, s := range l.segs {
		out = append(out, s.info())
	}
	return out
}

func (s *segment) info() SegmentInfo {
	return SegmentInfo{Base: s.base, End: s.end, Bytes: s.size, State: s.state, Root: s.root, Hole: s.hole}
}
