package drill

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// wantBreach wants a breach of the check whose text has part; with an empty check none at all.
func wantBreach(t *testing.T, what string, got []Breach, check, part string) {
	t.Helper()
	if check == "" {
		if len(got) > 0 {
			t.Errorf("%s: got %v, want none", what, got)
		}
		return
	}
	for _, b := range got {
		if b.Check == check && strings.Contains(b.Text, part) {
			return
		}
	}
	t.Errorf("%s: got %v, want %s with %q", what, got, check, part)
}

// A check that cannot fail checks nothing: each planted breach is found, and named.
func TestCheckLedger_FindsPlantedBreaches(t *testing.T) {
	acks := []Ack{{ID: 1, Offset: 0}, {ID: 2, Offset: 1}, {ID: 3, Offset: 2}}
	rec := func(id uint64, offset int64) Read { return Read{ID: id, Offset: offset, Epoch: 1, Sum: id + 100} }
	good := []Read{rec(1, 0), rec(2, 1), rec(3, 2)}
	late := rec(3, 2)
	late.Epoch = 0
	for name, c := range map[string]struct {
		read        []Read
		starts      map[int32]int64
		check, part string
	}{
		"a good log":               {read: good},
		"below the log start":      {read: good[1:], starts: map[int32]int64{0: 1}},
		"others' records":          {read: append(append([]Read(nil), good...), Read{Offset: 3, Epoch: 1, Sum: 7})},
		"lost":                     {read: []Read{rec(1, 0), rec(3, 2)}, check: K1, part: "record 2 was acknowledged at 0/1, where nothing stands"},
		"moved":                    {read: []Read{rec(1, 0), rec(2, 1), rec(3, 3)}, check: K1, part: "record 3"},
		"rewritten by others":      {read: []Read{rec(1, 0), {Offset: 1, Epoch: 1, Sum: 9}, rec(3, 2)}, check: K1, part: "where record 0 stands"},
		"two values at one offset": {read: append(append([]Read(nil), good...), rec(9, 2)), check: K2, part: "0/2"},
		"same id, other value":     {read: append(append([]Read(nil), good...), Read{ID: 3, Offset: 2, Epoch: 1, Sum: 4}), check: K2, part: "0/2"},
		"duplicated":               {read: append(append([]Read(nil), good...), rec(3, 3)), check: K4, part: "record 3 stands at 0/2 and at 0/3"},
		"reordered":                {read: []Read{rec(2, 0), rec(1, 1), rec(3, 2)}, check: K4, part: "order"},
		"an older epoch behind":    {read: []Read{rec(1, 0), rec(2, 1), late}, check: K6, part: "epoch 0, behind records of epoch 1"},
	} {
		wantBreach(t, name, CheckLedger(acks, c.read, c.starts), c.check, c.part)
		if c.check == K4 && name == "duplicated" { // which a plain producer may do
			wantBreach(t, name, CheckPlainLedger(acks, c.read, c.starts), "", "")
		}
	}
}

func TestCompareRead_FindsWhatIsGoneOrOther(t *testing.T) {
	read := map[place]uint64{{0, 0}: 5, {0, 1}: 6}
	stands := []Read{{Offset: 0, Sum: 5}, {Offset: 1, Sum: 6}}
	wantBreach(t, "the same", compareRead(read, stands, nil), "", "")
	wantBreach(t, "below the start", compareRead(read, stands[1:], map[int32]int64{0: 1}), "", "")
	wantBreach(t, "gone", compareRead(read, stands[:1], nil), K2, "0/1 is gone")
	wantBreach(t, "other", compareRead(read, []Read{stands[0], {Offset: 1, Sum: 7}}, nil), K2, "0/1 is not what stands")
}

func TestObserver_FindsWhatGoesBack(t *testing.T) {
	o := &Observer{read: map[place]uint64{}, next: map[int32]int64{}, latest: map[int32]seenEnd{}, first: map[int32]int64{}}
	end := func(epoch int32, offset int64) {
		o.sawEnd(kadm.ListedOffset{Offset: offset, LeaderEpoch: epoch})
	}
	end(1, 10)
	end(2, 12)
	end(1, 9) // an old leader that does not know yet
	wantBreach(t, "an old leader's word", o.breaches, "", "")
	end(2, 11)
	wantBreach(t, "end", o.breaches, K3, "went back from 12 (epoch 2) to 11")
	o.sawStart(kadm.ListedOffset{Offset: 4})
	o.sawStart(kadm.ListedOffset{Offset: 3})
	wantBreach(t, "start", o.breaches, K3, "start of range 0 went back from 4 to 3")
	o.sawRecord(&kgo.Record{Offset: 7})
	o.sawRecord(&kgo.Record{Offset: 6})
	wantBreach(t, "reader", o.breaches, K3, "from offset 8 to 6")
}

func TestLeases_FindsTwoHoldersAndEpochsThatFall(t *testing.T) {
	seen := func(l *Leases, at time.Duration, holder string, epoch int32) {
		l.Saw(time.Unix(0, 0).Add(at), []adminapi.Lease{{Range: 1, Holder: holder, Epoch: epoch, State: "serving"}})
	}
	l := NewLeases(time.Unix(0, 0))
	seen(l, 0, "n1", 3)
	seen(l, time.Second, "n1", 3)
	seen(l, 2*time.Second, "n2", 4)
	seen(l, 3*time.Second, "n1", 3) // a node that is late
	spans, breaches, epochs := l.Outcome()
	wantBreach(t, "a good history", breaches, "", "")
	if want := []Span{{1, "n1", 3, 0, 1000}, {1, "n2", 4, 2000, 2000}}; len(spans) != 2 || spans[0] != want[0] || spans[1] != want[1] || epochs != 2 {
		t.Errorf("spans %+v, epochs %d; want %+v", spans, epochs, want)
	}
	seen(l, 4*time.Second, "n3", 4)
	_, breaches, _ = l.Outcome()
	wantBreach(t, "two holders", breaches, K6, "epoch 4 was held by n2 and by n3")

	detail := func(change func(*adminapi.LeaseDetail)) []Breach {
		l := NewLeases(time.Unix(0, 0))
		seen(l, 0, "n1", 3)
		d := &adminapi.LeaseDetail{Lease: adminapi.Lease{Range: 1, Holder: "n2", Epoch: 4}, Epochs: []adminapi.EpochStart{{Epoch: 3, Start: 0}, {Epoch: 4, Start: 9}},
			Changes: []adminapi.LeaseChange{{Epoch: 4, Holder: "n2"}, {Epoch: 3}, {Epoch: 3, Holder: "n1"}}}
		change(d)
		l.History(d)
		_, out, _ := l.Outcome()
		return out
	}
	wantBreach(t, "a good history", detail(func(*adminapi.LeaseDetail) {}), "", "")
	wantBreach(t, "behind what was seen", detail(func(d *adminapi.LeaseDetail) { d.Epoch = 2 }), K6, "epoch 3 was seen before")
	wantBreach(t, "another holder then", detail(func(d *adminapi.LeaseDetail) { d.Changes[2].Holder = "n3" }), K6, "held by n1 and by n3")
	wantBreach(t, "table", detail(func(d *adminapi.LeaseDetail) { d.Epochs[1].Epoch = 3 }), K6, "stands behind")
	wantBreach(t, "changes", detail(func(d *adminapi.LeaseDetail) { d.Changes[0].Epoch = 2; d.Changes[0].Holder = "" }), K6, "went from epoch 3 to epoch 2")
}

// What was not looked at did not hold (I12).
func TestChecks_NothingLookedAtIsNotHeld(t *testing.T) {
	all := map[string]looked{}
	for _, p := range promises {
		all[p.name] = looked{1, "things"}
	}
	all[K3] = looked{}
	for _, c := range checksOf([]Breach{breach(K1, "lost")}, all, map[string]string{K5: "n3 does not answer"}) {
		want := c.Name != K1 && c.Name != K3 && c.Name != K5
		if c.Held != want {
			t.Errorf("%s: held %v, want %v: %+v", c.Name, c.Held, want, c)
		}
	}
}

func TestPayload_RoundTripAndDamage(t *testing.T) {
	for _, size := range []int{1, 24, 100, 1024} {
		b := Payload(77, size)
		if id, err := PayloadID(b); err != nil || id != 77 || len(b) != max(size, MinPayload) {
			t.Fatalf("size %d: %d bytes, %d, %v", size, len(b), id, err)
		}
		b[len(b)/2] ^= 1
		if _, err := PayloadID(b); err == nil {
			t.Fatalf("size %d: a flipped bit was not seen", size)
		}
	}
	if _, err := PayloadID(nil); err == nil {
		t.Fatal("an empty value has an id")
	}
}
