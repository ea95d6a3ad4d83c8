package storage

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// edit changes the bytes of a file at rest.
func edit(t testing.TB, fsys vfs.FS, name string, change func([]byte) []byte) {
	t.Helper()
	data, err := vfs.ReadFile(fsys, name, 1<<30)
	ok(t, err)
	f, err := fsys.Create(name)
	ok(t, err)
	_, err = f.WriteAt(change(data), 0)
	ok(t, err)
	ok(t, f.Sync())
	ok(t, f.Close())
	ok(t, fsys.SyncDir(filepath.Dir(name)))
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[(at+len(b))%len(b)] ^= 0x10; return b }
}

// damaged makes two replicas, the first with a sealed, a closed and a tail segment; closes the store, hands its
// file system to change, and opens it again.
func damaged(t testing.TB, change func(fsys *vfs.CrashFS, l *Log)) (*Store, *Log) {
	t.Helper()
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys, func(o *Options) { o.ZeroStepBytes = -1 }) // the end of the file is that of the batches
	other, err := s.Create(testRange(1), 2, 0)
	ok(t, err)
	mustLead(t, other, 1, plainBatch(1, 100, 1))
	for i := range 95 {
		mustLead(t, l, 1, producerBatch(1, 0, int32(i), 1))
	}
	mustFlush(t, l)
	ok(t, s.Promise([]Promise{{testRange(0), 1, 7}})[0])
	first := l.Closed()[0]
	root, _, err := l.Root(first.Base)
	ok(t, err)
	ok(t, l.Seal(first.Base, root))
	if segs := l.Segments(); len(segs) != 3 {
		t.Fatalf("segments %+v, want sealed, closed, tail", segs)
	}
	ok(t, s.Close())
	change(fsys, l)
	s = openStore(t, fsys)
	return s, s.Get(testRange(0))
}

// otherStarts fails unless the second replica serves: damage to one range is nobody else's (E7).
func otherStarts(t testing.TB, s *Store) {
	t.Helper()
	if other := s.Get(testRange(1)); other == nil || len(mustReadAny(other)) == 0 {
		t.Fatal("E7: the other range does not start")
	}
}

func mustReadAny(l *Log) []byte {
	out, _ := readAll(l, 0, l.End())
	return out
}

// One flipped bit in a sealed segment is a hole: never served, and the rest, the position, the promise and the vote
// stay (E3, I9). It is found by a read or by a scrub, and stays known over a restart.
func TestDamage_SealedSegmentIsAHole(t *testing.T) {
	for _, at := range []int{0, 7, 15, 30, 70, 1000, -1} {
		var told []Damage
		fsys := vfs.NewCrashFS(1)
		s, l := newLogOn(t, fsys, func(o *Options) { o.OnDamage = func(d Damage) { told = append(told, d) } })
		for i := range 95 {
			mustLead(t, l, 1, producerBatch(1, 0, int32(i), 1))
		}
		mustFlush(t, l)
		ok(t, s.Promise([]Promise{{testRange(0), 1, 7}})[0])
		root, _, err := l.Root(0)
		ok(t, err)
		ok(t, l.Seal(0, root))
		end := l.Segments()[0].End
		edit(t, fsys, l.path(0, logSuffix), flip(at))
		if at >= 0 {
			_, err = readAll(l, 0, end)
		} else {
			err = l.VerifySegment(context.Background(), 0)
		}
		wantErr(t, err, vtop.ErrDamaged)
		for range 2 {
			info := l.Info()
			if info.State != StateHoles || info.End != 95 || info.Promised != 7 || !strings.Contains(info.Reason, "root") || l.Err() != nil {
				t.Fatalf("byte %d: %+v", at, info)
			}
			_, _, _, err = l.Read(0, 100, 95, nil)
			wantErr(t, err, vtop.ErrDamaged)
			mustRead(t, l, end, 95)
			ok(t, s.Promise([]Promise{{testRange(0), 1, 7}})[0])
			ok(t, s.Close())
			s = openStore(t, fsys)
			l = s.Get(testRange(0))
		}
		if len(told) != 1 || !told[0].Hole || told[0].Base != 0 {
			t.Fatalf("byte %d: told %+v, want one hole", at, told)
		}
	}
}

// Damage outside sealed segments below the durable mark is I10: no vote, no service, no cut (I8), and it stays so.
func TestDamage_BelowTheMarkIsLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(fsys *vfs.CrashFS, l *Log)
	}{
		{"bit in the closed segment", func(f *vfs.CrashFS, l *Log) { edit(t, f, l.path(l.Segments()[1].Base, logSuffix), flip(500)) }},
		{"bit in the tail", func(f *vfs.CrashFS, l *Log) { edit(t, f, l.path(l.tailBase(), logSuffix), flip(30)) }},
		{"tail cut short", func(f *vfs.CrashFS, l *Log) {
			edit(t, f, l.path(l.tailBase(), logSuffix), func(b []byte) []byte { return b[:len(b)-1] })
		}},
		{"tail emptied", func(f *vfs.CrashFS, l *Log) {
			edit(t, f, l.path(l.tailBase(), logSuffix), func(b []byte) []byte { return nil })
		}},
		{"tail zeroed", func(f *vfs.CrashFS, l *Log) {
			edit(t, f, l.path(l.tailBase(), logSuffix), func(b []byte) []byte { clear(b); return b })
		}},
		{"tail removed", func(f *vfs.CrashFS, l *Log) { ok(t, f.Remove(l.path(l.tailBase(), logSuffix))) }},
		{"closed segment removed", func(f *vfs.CrashFS, l *Log) { ok(t, f.Remove(l.path(l.Segments()[1].Base, logSuffix))) }},
		{"all segments removed", func(f *vfs.CrashFS, l *Log) {
			for _, s := range l.Segments() {
				ok(t, f.Remove(l.path(s.Base, logSuffix)))
				_ = f.Remove(l.path(s.Base, manifestSuffix))
			}
		}},
		{"replica file removed", func(f *vfs.CrashFS, l *Log) { ok(t, f.Remove(filepath.Join(l.dir, metaName))) }},
		{"replica file emptied", func(f *vfs.CrashFS, l *Log) {
			edit(t, f, filepath.Join(l.dir, metaName), func(b []byte) []byte { return nil })
		}},
		{"replica file halved", func(f *vfs.CrashFS, l *Log) {
			edit(t, f, filepath.Join(l.dir, metaName), func(b []byte) []byte { return b[:len(b)/2] })
		}},
		{"replica file zeroed", func(f *vfs.CrashFS, l *Log) {
			edit(t, f, filepath.Join(l.dir, metaName), func(b []byte) []byte { clear(b); return b })
		}},
		{"directory removed", func(f *vfs.CrashFS, l *Log) { ok(t, f.RemoveAll(l.dir)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before string
			s, l := damaged(t, func(fsys *vfs.CrashFS, l *Log) {
				c.change(fsys, l)
				before = segmentFiles(t, fsys, l)
			})
			otherStarts(t, s)
			if l != nil && segmentFiles(t, s.fs, l) != before {
				t.Fatal("I8: the segments of a damaged replica were changed")
			}
			for range 2 {
				checkLost(t, s, l)
				fsys := s.fs
				ok(t, s.Close())
				s = openStore(t, fsys)
				l = s.Get(testRange(0))
			}
		})
	}
}

// segmentFiles returns the content of all segments.
func segmentFiles(t testing.TB, fsys vfs.FS, l *Log) string {
	t.Helper()
	var out strings.Builder
	names, _ := fsys.ReadDir(l.dir)
	for _, name := range names {
		if strings.HasSuffix(name, logSuffix) {
			data, err := vfs.ReadFile(fsys, filepath.Join(l.dir, name), 1<<30)
			ok(t, err)
			fmt.Fprintf(&out, "%s %x\n", name, data)
		}
	}
	return out.String()
}

func checkLost(t *testing.T, s *Store, l *Log) {
	t.Helper()
	infos := s.List()
	if len(infos) != 2 || infos[0].State != StateLost || !strings.Contains(infos[0].Reason, "repaired") {
		t.Fatalf("I10: replicas %+v", infos)
	}
	err := s.Promise([]Promise{{testRange(0), 1, 8}})[0]
	if err == nil {
		t.Fatal("I10: a lost replica promises")
	}
	if _, err := s.Create(testRange(0), 1, 0); err == nil && l == nil {
		t.Fatal("E11: a lost replica is made again, empty, under its id")
	}
	if l == nil {
		return
	}
	_, _, err = l.AppendLead(9, plainBatch(1, 10, 1))
	wantErr(t, err, vtop.ErrReplicaLost)
	_, err = l.AppendFollow(9, vtop.FenceFollow, 0, stamped(plainBatch(1, 10, 1), 0, 9))
	wantErr(t, err, vtop.ErrReplicaLost)
	_, _, _, err = l.Read(0, 10, 10, nil)
	wantErr(t, err, vtop.ErrReplicaLost)
	_, err = l.Reconcile(context.Background(), 9, nil, 0)
	wantErr(t, err, vtop.ErrReplicaLost)
	wantErr(t, l.ResetTo(context.Background(), 9, 1000, nil), vtop.ErrReplicaLost)
	wantErr(t, l.SetLogStart(1), vtop.ErrReplicaLost)
	_, _, _, err = l.OffsetForTime(0, 10)
	wantErr(t, err, vtop.ErrReplicaLost)
	wantErr(t, l.Verify(0), vtop.ErrReplicaLost)
}

// What can be rebuilt from the log is rebuilt, and nobody notices (E7, E8, D5).
func TestDamage_RebuiltFromTheLog(t *testing.T) {
	halve := func(b []byte) []byte { return b[:len(b)/2] }
	zero := func(b []byte) []byte { clear(b); return b }
	empty := func([]byte) []byte { return nil }
	for name, change := range map[string]func([]byte) []byte{"halved": halve, "zeroed": zero, "emptied": empty, "flipped": flip(25)} {
		for _, suffix := range []string{indexSuffix, producerSuffix, manifestSuffix} {
			t.Run(suffix+" "+name, func(t *testing.T) {
				s, l := damaged(t, func(fsys *vfs.CrashFS, l *Log) {
					names, err := fsys.ReadDir(l.dir)
					ok(t, err)
					for _, name := range names {
						if strings.HasSuffix(name, suffix) {
							edit(t, fsys, filepath.Join(l.dir, name), change)
						}
					}
				})
				otherStarts(t, s)
				ok(t, l.Err())
				checkLog(t, l)
				mustRead(t, l, 0, 95)
				for i := int32(90); i < 95; i++ {
					_, dup, err := l.AppendLead(8, producerBatch(1, 0, i, 1))
					ok(t, err)
					if dup == nil || dup.Base != vtop.Offset(i) {
						t.Fatalf("batch %d is not recognised", i)
					}
				}
				mustLead(t, l, 8, producerBatch(1, 0, 95, 1))
				mustFlush(t, l)
				for _, seg := range l.Closed() {
					root, _, err := l.Root(seg.Base)
					ok(t, err)
					ok(t, l.Seal(seg.Base, root))
				}
				if got, _, _, err := l.OffsetForTime(11_000, 95); err != nil || got != 10 {
					t.Fatalf("offset for a time: %d, %v", got, err)
				}
			})
		}
	}
}

// Above the durable mark the first bad byte ends the log, whatever follows it; a zeroed end is clean (E8).
func TestDamage_TornTail(t *testing.T) {
	last := func(b []byte) []byte { return bytes.Clone(b[lastBatchAt(b):]) }
	for _, c := range []struct {
		name   string
		change func([]byte) []byte
		lost   int
	}{
		{"cut in the header", func(b []byte) []byte { return b[:lastBatchAt(b)+20] }, 1},
		{"cut in the body", func(b []byte) []byte { return b[:len(b)-3] }, 1},
		{"zeros appended", func(b []byte) []byte { return append(b, make([]byte, 5000)...) }, 0},
		{"garbage appended", func(b []byte) []byte { return append(b, bytes.Repeat([]byte{0xa7}, 300)...) }, 0},
		{"zeros, then garbage", func(b []byte) []byte { return append(append(b, make([]byte, 5000)...), 1) }, 0},
		{"last batch appended again", func(b []byte) []byte { return append(b, last(b)...) }, 0},
		{"hole before the last batch", func(b []byte) []byte { b[lastBatchAt(b)-5] ^= 1; return b }, 2},
		{"header of the last batch zeroed", func(b []byte) []byte { clear(b[lastBatchAt(b):][:61]); return b }, 1},
		{"its CRC zeroed", func(b []byte) []byte { clear(b[lastBatchAt(b)+17:][:4]); return b }, 1},
		{"all zero but the offset", func(b []byte) []byte { clear(b[lastBatchAt(b)+8:]); return b }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfs.NewCrashFS(1)
			_, l := newLogOn(t, fsys, func(o *Options) { o.ZeroStepBytes = -1 }) // the end of the file is that of the batches
			for i := range 10 {
				mustLead(t, l, 1, producerBatch(1, 0, int32(i), 1))
			}
			mustFlush(t, l)
			want := mustRead(t, l, 0, 10-vtop.Offset(c.lost))
			after := fsys.CrashClone(newRand(1), vfs.KeepAll()) // no mark was written yet
			edit(t, after, l.path(0, logSuffix), c.change)
			l = openStore(t, after).Get(testRange(0))
			ok(t, l.Err())
			checkLog(t, l)
			if !bytes.Equal(mustRead(t, l, 0, l.End()), want) {
				t.Fatalf("the log ends at %d, want %d", l.End(), 10-c.lost)
			}
			b := producerBatch(1, 0, int32(10-c.lost), 1)
			mustLead(t, l, 2, b)
			mustFlush(t, l)
			l = openStore(t, after.CrashClone(newRand(2), vfs.KeepNone())).Get(testRange(0))
			ok(t, l.Err())
			if got := mustRead(t, l, 0, l.End()); !bytes.Equal(got, append(bytes.Clone(want), b...)) {
				t.Fatal("another log after the next power cut")
			}
		})
	}
}

// lastBatchAt is where the last of a file of batches begins.
func lastBatchAt(b []byte) (at int) {
	for pos := 0; pos+61 <= len(b); {
		at = pos
		pos += 12 + int(uint32(b[pos+8])<<24|uint32(b[pos+9])<<16|uint32(b[pos+10])<<8|uint32(b[pos+11]))
	}
	return at
}

// Without any durable mark the committed floor decides: bytes that are no records below it are damage (I10).
func TestDamage_FloorDecidesWithoutAMark(t *testing.T) {
	for _, marked := range []bool{false, true} {
		fsys := vfs.NewCrashFS(1)
		s, l := newLogOn(t, fsys)
		mustLead(t, l, 1, plainBatch(1, 50, 1))
		mustFlush(t, l)
		ok(t, s.Tick())
		mustLead(t, l, 1, plainBatch(1, 50, 2))
		mustFlush(t, l)
		if !marked {
			ok(t, s.journal.write([]entry{{entryForget, l.key(), 0}}))
		}
		clone := fsys.CrashClone(newRand(1), vfs.KeepAll())
		edit(t, clone, l.path(0, logSuffix), flip(-1))
		l = openStore(t, clone).Get(testRange(0))
		ok(t, l.Err())
		err := l.Verify(2)
		if marked {
			ok(t, err)
			continue
		}
		wantErr(t, err, vtop.ErrReplicaLost)
		wantErr(t, l.Err(), vtop.ErrReplicaLost)
	}
}

// A missing sealed segment is a hole (E12); removing it and its manifest too, since a later one is sealed.
func TestDamage_MissingSealedSegment(t *testing.T) {
	for _, alsoManifest := range []bool{false, true} {
		s, l := damaged(t, func(fsys *vfs.CrashFS, _ *Log) {
			s := openStore(t, fsys)
			l := s.Get(testRange(0))
			second := l.Closed()[0].Base
			root, _, err := l.Root(second)
			ok(t, err)
			ok(t, l.Seal(second, root))
			ok(t, s.Close())
			ok(t, fsys.Remove(l.path(0, logSuffix)))
			if alsoManifest {
				ok(t, fsys.Remove(l.path(0, manifestSuffix)))
			}
		})
		if info := l.Info(); info.State != StateHoles || info.End != 95 || l.Err() != nil {
			t.Fatalf("%+v", info)
		}
		_, _, _, err := l.Read(0, 10, 95, nil)
		wantErr(t, err, vtop.ErrDamaged)
		mustRead(t, l, l.Segments()[1].Base, 95)
		checkLog(t, l)
		mustLead(t, l, 8, producerBatch(1, 0, 95, 1))
		otherStarts(t, s)
	}
}
