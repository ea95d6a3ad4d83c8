package replica

import (
	"errors"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

func TestEngine_RefusesWhereItDoesNotLead(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	epoch := c.lead("a", r)
	a, b := c.nodes["a"], c.nodes["b"]
	if res := b.produce(r, "x"); !errors.Is(res.Err, vtop.ErrNotLeader) {
		t.Fatalf("follower admits: %v", res.Err)
	}
	if _, err := b.engine.Fetch(r, vtop.FetchSpec{MaxBytes: 1, ClientEpoch: -1, LastFetchedEpoch: -1}, nil); !errors.Is(err, vtop.ErrNotLeader) {
		t.Fatalf("follower serves reads: %v", err)
	}
	if _, err := b.engine.EndOffset(r, vtop.AnyEpoch); !errors.Is(err, vtop.ErrNotLeader) {
		t.Fatalf("follower tells an end: %v", err)
	}
	a.mustProduce(r, "x")
	for _, tc := range []struct {
		name string
		spec vtop.FetchSpec
		want error
	}{
		{"an older leader epoch", vtop.FetchSpec{ClientEpoch: epoch - 1, LastFetchedEpoch: -1}, vtop.ErrEpochFenced},
		{"a newer leader epoch", vtop.FetchSpec{ClientEpoch: epoch + 1, LastFetchedEpoch: -1}, vtop.ErrEpochUnknown},
		{"above the log end", vtop.FetchSpec{Offset: 2, ClientEpoch: -1, LastFetchedEpoch: -1}, vtop.ErrOffsetOutOfRange},
		{"at the log end", vtop.FetchSpec{Offset: 1, MaxBytes: 100, ClientEpoch: -1, LastFetchedEpoch: -1}, nil},
	} {
		if _, err := a.engine.Fetch(r, tc.spec, nil); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	unknown := vtop.Range{Topic: uuid()}
	if res := a.produce(unknown, "x"); !errors.Is(res.Err, vtop.ErrUnknownRange) {
		t.Fatalf("unknown range: %v", res.Err)
	}
	// I7: the holder's deadline has passed: no more answers, though nobody else leads yet.
	a.machine.Leases().Expire()
	if _, err := a.engine.EndOffset(r, vtop.AnyEpoch); !errors.Is(err, vtop.ErrNotLeader) {
		t.Fatalf("I7: serves after its deadline: %v", err)
	}
	if _, err := a.engine.Fetch(r, vtop.FetchSpec{MaxBytes: 100, ClientEpoch: -1, LastFetchedEpoch: -1}, nil); !errors.Is(err, vtop.ErrNotLeader) {
		t.Fatalf("I7: serves reads after its deadline: %v", err)
	}
	if res := a.produce(r, "y"); !errors.Is(res.Err, vtop.ErrNotLeader) {
		t.Fatalf("admits after its deadline: %v", res.Err)
	}
}

// A client that has read under a later epoch than this holder's knows more than it: the holder is deposed and not yet due to know.
// Nothing that it says of what the client has read is true, so it says nothing (I7).
func TestEngine_SaysNothingOfALaterEpoch(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	epoch := c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	for _, tc := range []struct {
		name  string
		epoch vtop.Epoch
		want  error
	}{{"its own", epoch, nil}, {"the next", epoch + 1, vtop.ErrEpochUnknown}, {"a much later one", epoch + 100, vtop.ErrEpochUnknown}} {
		for _, client := range []vtop.Epoch{vtop.AnyEpoch, epoch} {
			at, err := a.engine.EpochEnd(r, client, tc.epoch)
			if !errors.Is(err, tc.want) {
				t.Errorf("where %s ended: %+v, %v, want %v", tc.name, at, err, tc.want)
			}
			// The client may have read farther than this log goes: that is no offset out of range either.
			for _, offset := range []vtop.Offset{0, 1, 50} {
				res, err := a.engine.Fetch(r, vtop.FetchSpec{Offset: offset, MaxBytes: 100, ClientEpoch: client, LastFetchedEpoch: tc.epoch}, nil)
				diverges := tc.want == nil && offset > 1
				if !errors.Is(err, tc.want) || (res.Diverging != nil) != diverges {
					t.Errorf("offset %d, read up to there under %s: diverging %+v, %v, want %v", offset, tc.name, res.Diverging, err, tc.want)
				}
			}
		}
	}
}

func TestEngine_OffsetForTime(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	if _, found, err := a.engine.OffsetForTime(r, vtop.AnyEpoch, vtop.MaxTimestamp); err != nil || found {
		t.Fatalf("empty: %t %v", found, err)
	}
	for _, ts := range []int64{100, 300, 200, 300, 50} {
		b := batch.Build(batch.Spec{Records: []batch.Record{{Timestamp: ts, Value: []byte("x")}}})
		if res := c.answer(a.send(r, -1, b)); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	for _, tc := range []struct {
		ts, when int64
		at       vtop.Offset
		found    bool
	}{
		{0, 100, 0, true}, {101, 300, 1, true}, {300, 300, 1, true}, {301, 0, 0, false}, {vtop.MaxTimestamp, 300, 1, true},
	} {
		at, found, err := a.engine.OffsetForTime(r, vtop.AnyEpoch, tc.ts)
		if err != nil || found != tc.found || at.Offset != tc.at || at.Timestamp != tc.when {
			t.Errorf("time %d: %+v %t %v, want %d at %d", tc.ts, at, found, err, tc.when, tc.at)
		}
	}
}
