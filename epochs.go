package vtop

import "fmt"

// EpochStart is one entry of an epoch table: Epoch began to serve at offset Start.
type EpochStart struct {
	Epoch Epoch
	Start Offset
}

// EpochTable is the history of a range that the state machine keeps: every epoch that began to serve and
// still owns a span of offsets. Epochs and starts both rise strictly, so an entry owns the offsets from its
// own start to the start of the next entry, and the last entry owns all above.
//
// It decides what is real (I8): a record of epoch e at offset o is real if, and only if, e owns o. It takes
// the place of Raft's no-op entry and log matching; the argument is in docs/protocol.md. The same idea is
// Kafka's leader epoch cache (KIP-101, KIP-279), which here is agreed on instead of kept by each replica.
//
// A table is never edited in place: With and Trim return a new one.
type EpochTable []EpochStart

// With returns the table after epoch began to serve at start. Every entry that starts at or above start
// vanishes: a later leader may start lower, never having seen the suffix of an earlier one, and a record's
// span ends at the *lowest* later start. It refuses an epoch that is not above the last.
func (t EpochTable) With(epoch Epoch, start Offset) (EpochTable, error) {
	if n := len(t); n > 0 && epoch <= t[n-1].Epoch {
		return nil, fmt.Errorf("epoch %d starts at %d: table already ends with epoch %d", epoch, start, t[n-1].Epoch)
	}
	keep := len(t)
	for keep > 0 && t[keep-1].Start >= start {
		keep--
	}
	out := make(EpochTable, 0, keep+1)
	out = append(out, t[:keep]...)
	return append(out, EpochStart{epoch, start}), nil
}

// Trim returns the table without the entries whose span ends at or below logStart, except the newest entry
// that starts there or below, which still says which epoch the log start belongs to.
func (t EpochTable) Trim(logStart Offset) EpochTable {
	drop := 0
	for drop+1 < len(t) && t[drop+1].Start <= logStart {
		drop++
	}
	if drop == 0 {
		return t
	}
	return append(EpochTable(nil), t[drop:]...)
}

// Last returns the newest entry; ok is false for a range that never began to serve.
func (t EpochTable) Last() (last EpochStart, ok bool) {
	if len(t) == 0 {
		return EpochStart{}, false
	}
	return t[len(t)-1], true
}

// Span returns the offsets [start, end) that epoch owns; bounded is false for the newest epoch, which owns
// all above start. ok is false if the table does not know the epoch.
func (t EpochTable) Span(epoch Epoch) (start, end Offset, bounded, ok bool) {
	for i, e := range t {
		if e.Epoch != epoch {
			continue
		}
		if i+1 < len(t) {
			return e.Start, t[i+1].Start, true, true
		}
		return e.Start, 0, false, true
	}
	return 0, 0, false, false
}

// At returns the epoch that owns offset o; ok is false below the first entry.
func (t EpochTable) At(o Offset) (epoch Epoch, ok bool) {
	for i := len(t) - 1; i >= 0; i-- {
		if t[i].Start <= o {
			return t[i].Epoch, true
		}
	}
	return NoEpoch, false
}

// EpochRun is a stretch of a local log: the records from Start up to the next run, or up to the log end, carry Epoch.
type EpochRun struct {
	Epoch Epoch
	Start Offset
}

// Cut returns the lowest offset of a local log, given as its runs and its end, at which the table proves
// divergence; ok is false if nothing is to be cut. Records below the first entry are below known history:
// unknown never deletes (I8). The caller must hold a state in which every epoch of the log was either started
// or superseded, and must refuse (quarantine) a cut below the committed floor.
func (t EpochTable) Cut(runs []EpochRun, end Offset) (cut Offset, ok bool) {
	if len(t) == 0 {
		return 0, false
	}
	for i, run := range runs {
		from, to := max(run.Start, t[0].Start), end
		if i+1 < len(runs) {
			to = runs[i+1].Start
		}
		if from >= to {
			continue
		}
		start, spanEnd, bounded, known := t.Span(run.Epoch)
		switch {
		case !known || from < start || (bounded && from >= spanEnd):
			return from, true
		case bounded && to > spanEnd:
			return spanEnd, true
		}
	}
	return 0, false
}
