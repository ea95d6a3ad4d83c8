package storage

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Every segment gets its own verdict, and what could not be compared is unknown (I12).
func TestScrub_Verdicts(t *testing.T) {
	ld := newLeader(t, 330)
	mustLead(t, ld.l, 30, producerBatch(1, 0, 330, 1))
	_, err := ld.l.CloseTail(30)
	ok(t, err)
	settle(t, ld.l)
	flipInPlace(t, ld.fs, ld.l.path(ld.all[1].Base, logSuffix), -1)
	edit(t, ld.fs, ld.l.path(ld.all[2].Base, manifestSuffix), flip(40))
	var told []Damage
	ld.s.opt.OnDamage = func(d Damage) { told = append(told, d) }
	want := func(base vtop.Offset) ([32]byte, bool) {
		root, known := ld.want(base)
		if base == ld.all[3].Base {
			root[0]++
		}
		return root, known && base != ld.all[4].Base
	}
	verdicts, err := ld.s.Scrub(bg, testRange(0), 0, want)
	ok(t, err)
	expect := []struct {
		health Health
		reason string
		read   bool
	}{
		{HealthOK, "", true}, {HealthBad, "chunk 0", false}, {HealthBad, "manifest", false}, {HealthBad, "catalogue has", false},
		{HealthUnknown, "does not tell", true}, {HealthOK, "", true}, {HealthOK, "", true}, {HealthUnknown, "not sealed yet", false},
	}
	if len(verdicts) != len(expect) {
		t.Fatalf("%d verdicts, want %d: %+v", len(verdicts), len(expect), verdicts)
	}
	for i, v := range verdicts {
		if v.Health != expect[i].health || !strings.Contains(v.Reason, expect[i].reason) || (v.Reason == "") != (v.Health == HealthOK) ||
			expect[i].read && v.Read != v.Segment.Bytes {
			t.Errorf("segment %d: %s, %q, read %d", v.Segment.Base, v.Health, v.Reason, v.Read)
		}
	}
	if len(told) != 3 || len(ld.l.Holes()) != 3 {
		t.Fatalf("told of %+v, holes %+v", told, ld.l.Holes())
	}
	again, err := ld.s.Scrub(bg, testRange(0), 0, want)
	ok(t, err)
	for i, v := range again {
		if v.Health != expect[i].health {
			t.Errorf("again: segment %d: %s, %q", v.Segment.Base, v.Health, v.Reason)
		}
	}
	s := openStore(t, ld.fs.CrashClone(newRand(1), vfs.KeepNone()))
	if holes := s.Get(testRange(0)).Holes(); len(holes) != 3 {
		t.Fatalf("after a restart: %+v", holes)
	}
}

// A scrub that is ended says what it did not look at; one that cannot open a file says so and blames nobody.
func TestScrub_CouldNotLook(t *testing.T) {
	ld := newLeader(t, 250)
	ctx, cancel := context.WithCancelCause(bg)
	cause := errors.New("the node stops")
	n := 0
	err := ld.s.ScrubEach(ctx, testRange(0), 0, ld.want, func(v Verdict) {
		want := HealthUnknown
		if n++; n == 1 {
			want = HealthOK
			cancel(cause)
		}
		if v.Health != want || n > 1 && !strings.Contains(v.Reason, "the node stops") {
			t.Errorf("%d: %s, %q", n, v.Health, v.Reason)
		}
	})
	wantErr(t, err, cause)
	ld.s.files.drop(ld.l.segs[1])
	ld.fs.SetHook(vfs.Fail(vfs.On(vfs.OpOpen, fileName(ld.all[1].Base, logSuffix)), errors.New("too many open files")))
	verdicts, err := ld.s.Scrub(bg, testRange(0), 0, ld.want)
	ok(t, err)
	if verdicts[1].Health != HealthUnknown || len(ld.l.Holes()) != 0 {
		t.Fatalf("%+v", verdicts[1])
	}
	_, err = ld.s.Scrub(bg, testRange(4), 0, ld.want)
	wantErr(t, err, vtop.ErrUnknownRange)
	ok(t, ld.l.Lose("test"))
	_, err = ld.s.Scrub(bg, testRange(0), 0, ld.want)
	wantErr(t, err, vtop.ErrReplicaLost)
}

// The pacer asks for the time that the bytes are worth, and forgives no more than a second of idleness.
func TestPacer_Due(t *testing.T) {
	p := newPacer(1000)
	at := p.began
	if wait := p.due(500, at); wait != 500*time.Millisecond {
		t.Fatalf("wait %s", wait)
	}
	if wait := p.due(500, at.Add(500*time.Millisecond)); wait != 500*time.Millisecond {
		t.Fatalf("wait %s", wait)
	}
	if wait := p.due(1000, at.Add(time.Hour)); wait != 0 {
		t.Fatalf("after an idle hour: wait %s", wait)
	}
	if wait := p.due(1000, at.Add(time.Hour)); wait != time.Second {
		t.Fatalf("wait %s", wait)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	wantErr(t, newPacer(1).take(ctx, 1<<30), context.Canceled)
}
