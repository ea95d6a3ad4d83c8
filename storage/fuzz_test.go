package storage

import (
	"bytes"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Whatever is in the file of a tail, recovery neither panics nor believes more than what checks out, and the log
// goes on behind it.
func FuzzRecoverTail(f *testing.F) {
	var good []byte
	for i := range 3 {
		good = append(good, stamped(plainBatch(2, 20, uint64(i)), vtop.Offset(2*i), 1)...)
	}
	f.Add(good)
	f.Add(good[:len(good)-5])
	f.Add(append(bytes.Clone(good), make([]byte, 100)...))
	f.Add(append(bytes.Clone(good), good...))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := vfs.NewCrashFS(1)
		s, l := newLogOn(t, fsys)
		ok(t, s.Close())
		file, err := fsys.CreateNew(l.path(0, logSuffix))
		ok(t, err)
		_, err = file.WriteAt(data, 0)
		ok(t, err)
		s = openStore(t, fsys)
		l = s.Get(testRange(0))
		ok(t, l.Err())
		checkLog(t, l)
		got := mustRead(t, l, 0, l.End())
		if !bytes.HasPrefix(data, got) {
			t.Fatal("recovery made up bytes")
		}
		b := plainBatch(1, 10, 9)
		mustLead(t, l, max(l.LastEpoch(), 1), b)
		mustFlush(t, l)
		ok(t, s.Close())
		l = openStore(t, fsys).Get(testRange(0))
		ok(t, l.Err())
		if again := mustRead(t, l, 0, l.End()); !bytes.Equal(again, append(got, b...)) {
			t.Fatal("another log after a restart")
		}
	})
}

// A journal that is not what was written is damage, or ends early where it was never synced; it is never a panic
// and never more entries than bytes.
func FuzzParseJournal(f *testing.F) {
	id := vtop.StorageID{1}
	key := replicaKey{testRange(0), 1}
	base := appendFrames(nil, 0, []entry{{entryPromise, key, 3}})
	whole := append(encodeJournalHeader(id, uint64(journalHeader+len(base))), base...)
	whole = appendFrames(whole, uint64(len(whole)), []entry{{entryMark, key, 9}, {entryLost, key, 0}})
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add(whole[:journalHeader])
	f.Add(whole[:10])
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, torn, err := parseJournal(data, id)
		if len(entries)*entrySize > len(data) || torn > len(data) {
			t.Fatalf("%d entries and %d torn bytes of %d", len(entries), torn, len(data))
		}
		if err == nil && bytes.HasPrefix(whole, data) && len(data) < journalHeader+len(base) {
			t.Fatal("a journal that was cut in its base section is taken for whole")
		}
	})
}

// A small file that decodes encodes to the same bytes: nothing is read that is not there, and nothing ignored.
func FuzzSmallFiles(f *testing.F) {
	f.Add(replicaMeta{vtop.UUID{1}, testRange(3), 7, 100}.encode())
	f.Add(Identity{vtop.UUID{1}, vtop.UUID{2}, 3}.encode())
	x := newIndex(10)
	x.add(5, 0, 1)
	x.add(9, 100, 2)
	f.Add(x.encode(5, 200))
	table := newProducerTable(&Options{MaxProducers: 10})
	table.add(producerBatch(1, 0, 3, 2))
	f.Add(encodeSnapshot(testRange(0), 9, table.encode()))
	f.Add(encodeSmall(magicHole, []byte("reason")))
	f.Add(stageMeta{vtop.UUID{1}, testRange(3)}.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := decodeReplicaMeta(data); err == nil && !bytes.Equal(m.encode(), data) {
			t.Fatalf("replica meta %+v", m)
		}
		if m, err := decodeStageMeta(data); err == nil && !bytes.Equal(m.encode(), data) {
			t.Fatalf("stage meta %+v", m)
		}
		if id, err := decodeIdentity(data); err == nil && !bytes.Equal(id.encode(), data) {
			t.Fatalf("identity %+v", id)
		}
		if x, err := decodeIndex(data, 10, 5, 200); err == nil && !bytes.Equal(x.encode(5, 200), data) {
			t.Fatalf("index %+v", x)
		}
		if state, err := decodeSnapshot(data, testRange(0), 9); err == nil && !bytes.Equal(encodeSnapshot(testRange(0), 9, state), data) {
			t.Fatalf("snapshot %x", state)
		}
	})
}

// A producer state that decodes encodes to the same bytes: it has one form, since it is part of a root (I9).
func FuzzDecodeProducers(f *testing.F) {
	opt := &Options{MaxProducers: 10}
	table := newProducerTable(opt)
	for i := range int32(7) {
		table.add(producerBatch(int64(i%3), 0, i, 1))
	}
	f.Add(table.encode())
	f.Add(newProducerTable(opt).encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := decodeProducers(opt, data)
		if err != nil || len(data) == 0 {
			return
		}
		if got := table.encode(); !bytes.Equal(got, data) {
			t.Fatalf("%x became %x", data, got)
		}
	})
}
