package storage

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// readSealed reads a segment whole.
func readSealed(s *Store, w Want, pin PinID) ([]byte, error) {
	r, err := s.OpenSealed(testRange(0), w.Base, w.Root, pin)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
}

// What a pin holds is read to the last byte although retention took it; without the pin it is gone (F1).
func TestPin_OutlivesRetention(t *testing.T) {
	ld := newLeader(t, 200)
	all := mustRead(t, ld.l, 0, ld.l.End())
	p, err := ld.s.Pin(PinSpec{Range: testRange(0), ReplicaID: 1, Job: 7})
	ok(t, err)
	if p.ID == 0 || len(p.Segments) != len(ld.all) || p.Base != 0 || len(p.Producers) != 0 || p.Idle != 2*time.Minute {
		t.Fatalf("%+v", p)
	}
	ok(t, ld.l.SetLogStart(ld.l.End()))
	if left := ld.l.sealedPrefix(); len(left) != 0 {
		t.Fatalf("retention left %+v", left)
	}
	var got []byte
	for _, w := range ld.all {
		b, err := readSealed(ld.s, w, p.ID)
		ok(t, err)
		got = append(got, b...)
		encoded, err := ld.s.ReadManifest(testRange(0), w.Base, w.Root, p.ID)
		if err != nil || len(encoded) == 0 {
			t.Fatalf("manifest: %v", err)
		}
		_, err = readSealed(ld.s, w, 0)
		wantErr(t, err, ErrNoSegment)
	}
	if !bytes.Equal(got, all[:len(got)]) {
		t.Fatal("I9: other bytes through the pin")
	}
	info := ld.s.Pins()
	if len(info) != 1 || info[0].Job != 7 || info[0].Segments != len(ld.all) || info[0].Files != 2*len(ld.all) ||
		info[0].Bytes != int64(len(got)) || info[0].Unlinked != info[0].Bytes {
		t.Fatalf("%+v", info)
	}
	if !ld.s.Unpin(p.ID) || ld.s.Unpin(p.ID) || ld.s.Unpin(99) {
		t.Fatal("released twice, or not at all")
	}
	_, err = readSealed(ld.s, ld.all[0], p.ID)
	wantErr(t, err, ErrPinGone)
	if !strings.Contains(err.Error(), "released") || len(ld.s.Pins()) != 0 || ld.s.pins.files != 0 || ld.s.pins.bytes != 0 {
		t.Fatalf("%v, %d files", err, ld.s.pins.files)
	}
}

// The disk gets its room back when the pin has ended and the last reader has closed, not before.
func TestPin_GivesTheDiskBack(t *testing.T) {
	ld := newLeader(t, 200)
	p, err := ld.s.Pin(PinSpec{Range: testRange(0)})
	ok(t, err)
	ok(t, ld.l.SetLogStart(ld.l.End()))
	free := func() uint64 { free, _, err := ld.fs.Free(testDir); ok(t, err); return free }
	before := free()
	r, err := ld.s.OpenSealed(testRange(0), ld.all[0].Base, ld.all[0].Root, p.ID)
	ok(t, err)
	if !ld.s.Unpin(p.ID) {
		t.Fatal("not released")
	}
	between := free()
	_, err = r.ReadAt(make([]byte, 10), 0)
	wantErr(t, err, ErrPinGone)
	ok(t, r.Close())
	ok(t, r.Close())
	if after := free(); between <= before || after < between+uint64(ld.all[0].Bytes) {
		t.Fatalf("free: %d, %d after the pin, %d after the reader", before, between, after)
	}
}

// A pin that nobody uses ends by itself, and whoever comes back is told why; each use starts its time anew.
func TestPin_IdleExpiry(t *testing.T) {
	clock := &testClock{}
	ld := newLeader(t, 200, clock.use, func(o *Options) { o.PinIdle = time.Minute })
	p, err := ld.s.Pin(PinSpec{Range: testRange(0)})
	ok(t, err)
	r, err := ld.s.OpenSealed(testRange(0), 0, ld.all[0].Root, p.ID)
	ok(t, err)
	defer r.Close()
	uses := []func(){
		func() { ok(t, ld.s.TouchPin(p.ID)) },
		func() { _, err := r.ReadAt(make([]byte, 5), 3); ok(t, err) },
		func() { _, err := readSealed(ld.s, ld.all[1], p.ID); ok(t, err) },
	}
	for _, use := range uses {
		clock.now += time.Minute - 1
		ok(t, ld.s.Tick())
		use()
	}
	clock.now += time.Minute - 1
	ok(t, ld.s.Tick())
	if info := ld.s.Pins(); len(info) != 1 || info[0].Idle != time.Minute-1 || info[0].Limit != time.Minute {
		t.Fatalf("%+v", info)
	}
	clock.now++
	ok(t, ld.s.Tick())
	ok(t, ld.l.SetLogStart(ld.l.End()))
	wantErr(t, ld.s.TouchPin(p.ID), ErrPinGone)
	_, err = readSealed(ld.s, ld.all[0], p.ID)
	wantErr(t, err, ErrPinGone)
	if !strings.Contains(err.Error(), "not used for 1m0s") || !strings.Contains(err.Error(), "retention") {
		t.Fatalf("the cause is not named: %v", err)
	}
}

// A segment that is sealed while a growing pin is there is held before retention can see it, however small retention is
// (must-show of the race between seal and retention).
func TestPin_GrowsUntilSettled(t *testing.T) {
	ld := newLeader(t, 200)
	p, err := ld.s.Pin(PinSpec{Range: testRange(0), Growing: true})
	ok(t, err)
	for i := range 100 {
		mustLead(t, ld.l, 6, producerBatch(1, 0, int32(200+i), 1))
	}
	closed, err := ld.l.CloseTail(6)
	ok(t, err)
	for i := range 100 {
		mustLead(t, ld.l, 6, producerBatch(1, 0, int32(300+i), 1))
	}
	settle(t, ld.l)
	ok(t, ld.l.SetLogStart(ld.l.End())) // takes all that is sealed, and each that will be
	_, err = ld.s.SettlePin(p.ID, closed.End)
	wantErr(t, err, vtop.ErrNotReady)
	ld.seal(t)
	if left := ld.l.sealedPrefix(); len(left) != 0 {
		t.Fatalf("retention left %+v", left)
	}
	for _, seg := range ld.s.pins.byID[p.ID].segs { // I13: it is bounded from the first question on
		if seg.info.End > closed.End {
			t.Fatalf("segment %d is held, beyond %d", seg.info.Base, closed.End)
		}
	}
	got, err := ld.s.SettlePin(p.ID, closed.End)
	ok(t, err)
	at := vtop.Offset(0)
	for _, seg := range got.Segments {
		w := Want{seg.Base, seg.End, seg.Bytes, seg.Root}
		if seg.Base != at {
			t.Fatalf("a gap at %d", at)
		}
		b, err := readSealed(ld.s, w, p.ID)
		if err != nil || int64(len(b)) != seg.Bytes {
			t.Fatalf("segment %d: %v", seg.Base, err)
		}
		at = seg.End
	}
	if at != closed.End || got.ID != p.ID || got.Base != 0 {
		t.Fatalf("settled at %d, want %d", at, closed.End)
	}
	beyond := ld.all[len(got.Segments)]
	_, err = readSealed(ld.s, beyond, p.ID)
	wantErr(t, err, ErrNoSegment)
	if info := ld.s.Pins(); info[0].Growing || info[0].Segments != len(got.Segments) {
		t.Fatalf("%+v", info)
	}
	for i := range 100 {
		mustLead(t, ld.l, 6, producerBatch(1, 0, int32(400+i), 1))
	}
	ld.seal(t)
	if info := ld.s.Pins(); info[0].Segments != len(got.Segments) {
		t.Fatalf("it grows on: %+v", info)
	}
}

// Pins are bounded, and what is refused leaves nothing behind (I13).
func TestPin_Caps(t *testing.T) {
	for what, cap := range map[string]func(*Options){
		"pins":  func(o *Options) { o.MaxPins = 1 },
		"files": func(o *Options) { o.PinFiles = 7 },
		"bytes": func(o *Options) { o.PinBytes = 8 << 10 },
	} {
		ld := newLeader(t, 120, cap)
		var have []vtop.Offset
		for _, w := range ld.all[2:] {
			have = append(have, w.Base)
		}
		first, err := ld.s.Pin(PinSpec{Range: testRange(0), Have: have})
		ok(t, err)
		_, err = ld.s.Pin(PinSpec{Range: testRange(0), Have: have})
		var limit *PinLimitError
		if !asErr(err, &limit) || limit.What != what {
			t.Fatalf("%s: %v", what, err)
		}
		wantErr(t, err, vtop.ErrOverloaded)
		if info := ld.s.Pins(); len(info) != 1 || info[0].Segments != 2 || ld.s.pins.files != 4 {
			t.Fatalf("%s: %+v, %d files", what, info, ld.s.pins.files)
		}
		ld.s.Unpin(first.ID)
		again, err := ld.s.Pin(PinSpec{Range: testRange(0), Have: have})
		ok(t, err)
		if again.ID <= first.ID {
			t.Fatalf("pin %d after %d", again.ID, first.ID)
		}
	}
}

// A growing pin that meets a cap says so when it is settled, and is gone.
func TestPin_GrowthRefused(t *testing.T) {
	ld := newLeader(t, 100, func(o *Options) { o.PinFiles = 5 })
	if len(ld.all) != 2 {
		t.Fatalf("%d segments", len(ld.all))
	}
	p, err := ld.s.Pin(PinSpec{Range: testRange(0), Growing: true})
	ok(t, err)
	closed, err := ld.l.CloseTail(3)
	ok(t, err)
	ld.seal(t)
	_, err = ld.s.SettlePin(p.ID, closed.End)
	wantErr(t, err, vtop.ErrOverloaded)
	wantErr(t, ld.s.TouchPin(p.ID), ErrPinGone)
	if ld.s.pins.files != 0 {
		t.Fatalf("%d files", ld.s.pins.files)
	}
}

// A full disk ends the pin that keeps most of what retention unlinked, and no other.
func TestPin_FullDisk(t *testing.T) {
	ld := newLeader(t, 200, func(o *Options) { o.Reserve = 64 << 20 })
	var have []vtop.Offset
	for _, w := range ld.all[1:] {
		have = append(have, w.Base)
	}
	small, err := ld.s.Pin(PinSpec{Range: testRange(0), Have: have})
	ok(t, err)
	large, err := ld.s.Pin(PinSpec{Range: testRange(0)})
	ok(t, err)
	ld.fs.SetCapacity(64 << 20)
	ok(t, ld.s.Tick())
	if len(ld.s.Pins()) != 2 {
		t.Fatal("a pin that keeps nothing was ended")
	}
	ok(t, ld.l.SetLogStart(ld.l.End()))
	ok(t, ld.s.Tick())
	err = ld.s.TouchPin(large.ID)
	wantErr(t, err, ErrPinGone)
	if !strings.Contains(err.Error(), "nearly full") {
		t.Fatalf("%v", err)
	}
	ok(t, ld.s.TouchPin(small.ID))
}

// A pin dies with its process and leaves nothing; its id names no later pin.
func TestPin_CrashLeavesNothing(t *testing.T) {
	ld := newLeader(t, 200)
	before := listing(t, ld.fs, testDir)
	p, err := ld.s.Pin(PinSpec{Range: testRange(0)})
	ok(t, err)
	if listing(t, ld.fs, testDir) != before {
		t.Fatal("a pin is on disk")
	}
	s := openStore(t, ld.fs.CrashClone(newRand(1), vfs.KeepAll()))
	wantErr(t, s.TouchPin(p.ID), ErrPinGone)
	again, err := s.Pin(PinSpec{Range: testRange(0)})
	ok(t, err)
	if again.ID == p.ID || len(s.Pins()) != 1 {
		t.Fatalf("pin %d again", again.ID)
	}
}

// What is pinned is a snapshot of one replica: strangers and the wrong ids are refused; a lost one is no source (I10).
func TestPin_Refusals(t *testing.T) {
	ld := newLeader(t, 200)
	_, err := ld.s.Pin(PinSpec{Range: testRange(5)})
	wantErr(t, err, vtop.ErrUnknownRange)
	_, err = ld.s.Pin(PinSpec{Range: testRange(0), ReplicaID: 2})
	wantErr(t, err, vtop.ErrFenced)
	p, err := ld.s.Pin(PinSpec{Range: testRange(0)})
	ok(t, err)
	_, err = ld.s.OpenSealed(testRange(1), 0, ld.all[0].Root, p.ID)
	wantErr(t, err, ErrPinGone)
	ok(t, ld.l.Lose("test"))
	_, err = ld.s.Pin(PinSpec{Range: testRange(0)})
	wantErr(t, err, vtop.ErrReplicaLost)
	_, err = readSealed(ld.s, ld.all[0], p.ID)
	wantErr(t, err, vtop.ErrReplicaLost)
	ok(t, ld.s.Delete(testRange(0)))
	_, err = readSealed(ld.s, ld.all[0], p.ID)
	wantErr(t, err, vtop.ErrReplicaLost)
}

// A range that was deleted stays readable through its pin until that ends.
func TestPin_OutlivesDeletion(t *testing.T) {
	ld := newLeader(t, 200)
	p, err := ld.s.Pin(PinSpec{Range: testRange(0)})
	ok(t, err)
	ok(t, ld.s.Delete(testRange(0)))
	b, err := readSealed(ld.s, ld.all[0], p.ID)
	if err != nil || int64(len(b)) != ld.all[0].Bytes {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if info := ld.s.Pins(); info[0].Unlinked != info[0].Bytes {
		t.Fatalf("%+v", info)
	}
}
