package group

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestClassic_FirstMembersWaitForOthers(t *testing.T) {
	w := newClassicWorld(t)
	w.limits.InitialDelay = time.Second
	one := w.join(nil)
	w.pass(900 * time.Millisecond)
	two := w.join(nil)
	w.pass(900 * time.Millisecond) // beyond the first second, but somebody came
	if w.joins[one] != nil {
		t.Fatal("the delay does not begin again")
	}
	w.pass(time.Second)
	if a, b := w.joinedAs(one), w.joinedAs(two); a.Generation != 1 || len(a.Members)+len(b.Members) != 2 || a.Leader != b.Leader {
		t.Errorf("%+v and %+v", a, b)
	}
}

func TestClassic_WhoIsAwayIsLeftOut(t *testing.T) {
	w := newClassicWorld(t)
	ids := w.stable(3)
	g := w.g.generation
	n := w.join(func(r *Join) { r.MemberID = ids[0] }) // the leader asks for a rebalance
	if err := w.beat(ids[1], g); !errors.Is(err, ErrRebalance) {
		t.Errorf("heartbeat: %v", err)
	}
	// Case: during the joining a member still commits what it had read.
	if err := w.g.checkCommit(w.now, Claim{MemberID: ids[1], Generation: g}); err != nil {
		t.Errorf("commit: %v", err)
	}
	for range 8 { // one goes on beating, and never joins; the other is silent
		w.pass(5 * time.Second)
		w.beat(ids[1], g)
	}
	if j := w.joinedAs(n); len(j.Members) != 1 || j.Generation != g+1 {
		t.Errorf("%+v", j)
	}
	for _, id := range ids[1:] {
		if err := w.beat(id, g); !errors.Is(err, ErrUnknownMember) {
			t.Errorf("heartbeat of %s: %v", id, err)
		}
	}
}

func TestClassic_MemberThatNeverSyncsGoes(t *testing.T) {
	w := newClassicWorld(t)
	j := w.joinedAs(w.join(nil))
	for range 7 {
		w.pass(5 * time.Second)
		w.beat(j.MemberID, j.Generation)
	}
	w.wantState(classicEmpty, j.Generation+1, 0)
}

func TestClassic_LeaderDiesInTheMiddle(t *testing.T) {
	w := newClassicWorld(t)
	ids := w.stable(2)
	n := w.join(func(r *Join) { r.MemberID = ids[1]; r.Protocols = []Protocol{{"range", []byte("new")}} })
	w.pass(12 * time.Second) // the leader's session ends
	j := w.joinedAs(n)
	if j.Leader != ids[1] || len(j.Members) != 1 || j.Protocol != "range" {
		t.Errorf("%+v", j)
	}
}

func TestClassic_SyncWaitsForTheLeader(t *testing.T) {
	w := newClassicWorld(t)
	ids := w.stable(2)
	g := w.g.generation + 1
	for _, id := range ids {
		w.join(func(r *Join) { r.MemberID = id })
	}
	waiting := w.sync(ids[1], g)
	if w.syncs[waiting] != nil {
		t.Fatal("answered before the leader came")
	}
	// Case: it asks again, over another connection: the first one need not wait.
	again := w.sync(ids[1], g)
	w.wantSync(waiting, ErrRebalance, "")
	w.wantSync(w.sync(ids[0], g-1), ErrIllegalGeneration, "")
	w.wantSync(w.sync("nobody", g), ErrUnknownMember, "")
	w.sync(ids[0], g, Assignment{ids[1], []byte("x")}, Assignment{"nobody", []byte("y")})
	w.wantSync(again, nil, "x")
	// Case: the answer was lost.
	w.wantSync(w.sync(ids[1], g), nil, "x")
	// Case: a rebalance begins while somebody waits.
	for _, id := range ids {
		w.join(func(r *Join) { r.MemberID = id; r.Protocols = []Protocol{{"range", []byte("newer")}} })
	}
	waiting = w.sync(ids[1], g+1)
	w.join(nil)
	w.wantSync(waiting, ErrRebalance, "")
}

func TestClassic_LostGenerationIsNotGivenOutAgain(t *testing.T) {
	w := newClassicWorld(t)
	ids := w.stable(2)
	g := w.g.generation
	for _, id := range ids {
		w.join(func(r *Join) { r.MemberID = id })
	}
	w.wantState(classicSyncing, g+1, 2)
	w.failOver() // before the leader brought the assignments
	w.wantState(classicJoining, g+1, 2)
	for _, claim := range []Claim{{MemberID: ids[0], Generation: g}, {MemberID: ids[1], Generation: g + 1}} {
		if err := w.g.heartbeat(w.now, claim); !errors.Is(err, ErrRebalance) {
			t.Errorf("heartbeat in %d: %v", claim.Generation, err)
		}
		if err := w.g.checkCommit(w.now, claim); err != nil {
			t.Errorf("commit in %d: %v", claim.Generation, err)
		}
	}
	n := w.join(func(r *Join) { r.MemberID = ids[0] })
	w.join(func(r *Join) { r.MemberID = ids[1] })
	if j := w.joinedAs(n); j.Generation != g+2 {
		t.Errorf("generation %d, want %d", j.Generation, g+2)
	}
}

func TestClassic_StaticMemberComesBack(t *testing.T) {
	static := func(r *Join) { id := "i"; r.InstanceID = &id }
	w := newClassicWorld(t)
	one := w.joinedAs(w.join(static))
	w.sync(one.MemberID, 1, Assignment{one.MemberID, []byte("all")})
	// Case: another process of the instance takes over without a rebalance; the old one is fenced.
	two := w.joinedAs(w.join(func(r *Join) { static(r); r.SkipsAssignment = true }))
	if two.Generation != 1 || !two.SkipAssignment || two.Leader != two.MemberID || two.MemberID == one.MemberID {
		t.Errorf("%+v after %+v", two, one)
	}
	w.wantSync(w.sync(two.MemberID, 1), nil, "all")
	id := "i"
	if err := w.g.heartbeat(w.now, Claim{MemberID: one.MemberID, InstanceID: &id, Generation: 1}); !errors.Is(err, ErrFencedInstance) {
		t.Errorf("the old one: %v", err)
	}
	w.wantJoin(w.join(func(r *Join) { static(r); r.MemberID = one.MemberID }), ErrFencedInstance)
	// Case: a client from before KIP-814 must not think that it leads.
	three := w.joinedAs(w.join(static))
	if three.Leader == three.MemberID || len(three.Members) > 0 || three.SkipAssignment {
		t.Errorf("%+v", three)
	}
	// Case: another coordinator knows it still.
	w.failOver()
	four := w.joinedAs(w.join(static))
	if four.Generation != 1 {
		t.Errorf("%+v", four)
	}
	// Case: away for a rebalance, it keeps its place until its session ends.
	n := w.join(nil)
	w.pass(9 * time.Second)
	if w.joins[n] != nil {
		t.Fatal("not waited for")
	}
	w.pass(2 * time.Second)
	w.joinedAs(n)
	w.wantState(classicSyncing, 2, 1)
}

func TestClassic_Refusals(t *testing.T) {
	cases := []struct {
		name string
		edit func(*Join)
		want error
	}{
		{"a session too short", func(r *Join) { r.Session = time.Second }, ErrInvalidSession},
		{"a session too long", func(r *Join) { r.Session = time.Hour }, ErrInvalidSession},
		{"no protocol", func(r *Join) { r.Protocols = nil }, ErrInconsistentProtocol},
		{"another type", func(r *Join) { r.ProtocolType = "connect" }, ErrInconsistentProtocol},
		{"no common protocol", func(r *Join) { r.Protocols = []Protocol{{"own", nil}} }, ErrInconsistentProtocol},
		{"a protocol twice", func(r *Join) { r.Protocols = []Protocol{{"range", nil}, {"range", nil}} }, ErrInvalidRequest},
		{"a name without end", func(r *Join) { r.Protocols = []Protocol{{strings.Repeat("x", 2000), nil}} }, ErrInvalidRequest},
		{"an empty instance", func(r *Join) { r.InstanceID = new(string) }, ErrInvalidRequest},
		{"an unknown member", func(r *Join) { r.MemberID = "nobody" }, ErrUnknownMember},
		{"an unknown instance", func(r *Join) { r.MemberID, r.InstanceID = "nobody", &r.ClientID }, ErrUnknownMember},
		{"metadata without end", func(r *Join) { r.Protocols[0].Metadata = make([]byte, 4<<20) }, ErrGroupFull},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := newClassicWorld(t)
			w.stable(2)
			g := w.g.generation
			w.wantJoin(w.join(tc.edit), tc.want)
			w.wantState(classicStable, g, 2) // and nobody was disturbed
		})
	}
}

func TestClassic_Bounds(t *testing.T) {
	w := newClassicWorld(t)
	w.limits.MaxMembers = 3
	needsID := func(r *Join) { r.NeedsID = true }
	w.stable(2)
	w.wantJoin(w.join(needsID), ErrMemberIDRequired)
	w.wantJoin(w.join(needsID), ErrGroupFull)
	w.wantJoin(w.join(nil), ErrGroupFull)
	w.pass(10 * time.Second) // the id that was given out is good for a session only
	if len(w.g.pending) > 0 {
		t.Errorf("pending: %v", w.g.pending)
	}
	// An assignment too large is the leader's to mend; the others are not told of it.
	w = newClassicWorld(t)
	w.limits.MaxGroupBytes = 1 << 10
	j := w.joinedAs(w.join(nil))
	w.wantSync(w.sync(j.MemberID, 1, Assignment{j.MemberID, make([]byte, 2<<10)}), ErrGroupFull, "")
	w.wantSync(w.sync(j.MemberID, 1, Assignment{j.MemberID, []byte("small")}), nil, "small")
}

func TestClassic_ChoosesWhatMostPrefer(t *testing.T) {
	w := newClassicWorld(t)
	w.limits.InitialDelay = time.Second
	var last ticket
	for _, first := range []string{"a", "b", "b"} {
		last = w.join(func(r *Join) {
			r.Protocols = []Protocol{{"only " + first, nil}, {first, nil}, {"a", nil}, {"b", nil}}
			for i := 2; i < len(r.Protocols); i++ {
				if r.Protocols[i].Name == first {
					r.Protocols = append(r.Protocols[:i], r.Protocols[i+1:]...)
				}
			}
		})
	}
	w.pass(5 * time.Second)
	if j := w.joinedAs(last); j.Protocol != "b" {
		t.Errorf("chose %q", j.Protocol)
	}
}

func TestClassic_Leavers(t *testing.T) {
	w := newClassicWorld(t)
	static := w.joinedAs(w.join(func(r *Join) { id := "i"; r.InstanceID = &id }))
	pending := w.join(func(r *Join) { r.NeedsID = true })
	id, other := "i", "other"
	left, eff := w.g.leave(w.now, []Leaver{
		{MemberID: "nobody"}, {InstanceID: &other}, {MemberID: "wrong", InstanceID: &id}, {InstanceID: &id}, {MemberID: w.joins[pending].MemberID},
	})
	w.took(eff)
	for i, want := range []error{ErrUnknownMember, ErrUnknownMember, ErrFencedInstance, nil, nil} {
		if !errors.Is(left[i].Err, want) {
			t.Errorf("leaver %d: %v, want %v", i, left[i].Err, want)
		}
	}
	w.wantState(classicEmpty, static.Generation+1, 0)
	if w.header.EmptySince != w.now.UnixMilli() {
		t.Errorf("empty since %d", w.header.EmptySince)
	}
}

func TestClassic_Subscribes(t *testing.T) {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics = 3, []string{"t", "u"}
	w := newClassicWorld(t)
	w.join(func(r *Join) { r.Protocols = []Protocol{{"range", meta.AppendTo(nil)}, {"broken", []byte{0}}} })
	if !w.g.subscribes("u") || w.g.subscribes("v") {
		t.Error("the metadata was not read")
	}
}

// FuzzProtocols: what cannot be read is refused, and what can comes back the same.
func FuzzProtocols(f *testing.F) {
	f.Add(encodeProtocols("", []Protocol{{"range", []byte("m")}, {"sticky", nil}}))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		ps, err := decodeProtocols(b)
		if err != nil {
			return
		}
		again, err := decodeProtocols(encodeProtocols("", ps))
		if m := (&classicMember{protocols: ps}); err != nil || !m.agrees(again) {
			t.Fatalf("%v came back as %v, %v", ps, again, err)
		}
	})
}

// FuzzMetadata: what a client calls its metadata may be anything.
func FuzzMetadata(f *testing.F) {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics = 1, []string{"t"}
	f.Add(meta.AppendTo(nil))
	f.Add([]byte{0, 3, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		g := newClassicGroup("g", new(Limits), nil)
		g.protocolType = consumerProtocol
		g.members["m"] = &classicMember{protocols: []Protocol{{"range", b}}}
		g.subscribes("t")
	})
}
