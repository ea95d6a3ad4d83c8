package storage

import (
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/vfs"
)

// The answer is that of a look at every record, for any limit and log start and any order of times.
func TestOffsetOfMaxTimestamp_AsEveryRecordSays(t *testing.T) {
	for seed := range uint64(6) {
		rng := newRand(seed)
		fsys := vfs.NewCrashFS(1)
		s, l := newLogOn(t, fsys)
		var times []int64
		var ends []vtop.Offset
		for range 150 {
			spec := batch.Spec{Epoch: 1}
			for range 1 + rng.IntN(3) {
				at := int64(rng.IntN(40))
				switch seed % 3 {
				case 1:
					at += int64(len(times))
				case 2:
					at -= int64(len(times))
				}
				times = append(times, at)
				spec.Records = append(spec.Records, batch.Record{Timestamp: at, Value: make([]byte, rng.IntN(300))})
			}
			mustLead(t, l, 1, batch.Build(spec))
			ends = append(ends, l.End())
		}
		settle(t, l)
		for i, seg := range l.Closed() {
			if i < 3 {
				root, _, err := l.Root(seg.Base)
				ok(t, err)
				ok(t, l.Seal(seg.Base, root))
			}
		}
		check := func(l *Log, limit vtop.Offset) {
			t.Helper()
			best := vtop.Offset(-1)
			for o := l.Start(); o < limit; o++ {
				if best < 0 || times[o] > times[best] {
					best = o
				}
			}
			got, at, found, err := l.OffsetOfMaxTimestamp(limit)
			ok(t, err)
			if found != (best >= 0) || found && (got != best || at != times[best]) {
				t.Fatalf("seed %d, from %d below %d: %d at %d (%v), want %d", seed, l.Start(), limit, got, at, found, best)
			}
		}
		check(l, 0)
		for range 25 {
			check(l, ends[rng.IntN(len(ends))])
		}
		check(l, l.End()+100-100)
		for range 5 {
			ok(t, l.SetLogStart(l.Start()+vtop.Offset(rng.IntN(60))))
			for range 8 {
				check(l, max(ends[rng.IntN(len(ends))], l.Start()))
			}
		}
		ok(t, s.Close())
		l = openStore(t, fsys).Get(testRange(0))
		check(l, l.End())
	}
}

// An answer that may lie in a hole is no answer (I12).
func TestOffsetOfMaxTimestamp_Hole(t *testing.T) {
	ld := newLeader(t, 250)
	flipInPlace(t, ld.fs, ld.l.path(ld.all[1].Base, logSuffix), 90)
	wantErr(t, ld.l.VerifySegment(bg, ld.all[1].Base), vtop.ErrDamaged)
	_, _, _, err := ld.l.OffsetOfMaxTimestamp(250)
	wantErr(t, err, vtop.ErrDamaged)
	_, _, found, err := ld.l.OffsetOfMaxTimestamp(ld.all[0].End)
	if err != nil || !found {
		t.Fatalf("below the hole: %v", err)
	}
}
