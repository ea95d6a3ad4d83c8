package fsm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
)

// richState holds at least one object of every kind, with every field set somewhere.
func richState(t *testing.T) *State {
	t.Helper()
	w := newWorld(t)
	e := w.lead("n1", 3)
	w.report(5, 7)
	w.ok(w.segmentOf(0, 5))
	w.ok(w.segmentOf(5, 9))
	w.ok(&MoveLogStart{Range: r0, Epoch: e, Start: 2})
	w.ok(w.lostOf("n2", w.replicaOn("n2")))
	w.report(9, 9)
	w.ok(w.changeOf(AddLearner, "n2", 0))
	w.report(10, 9)
	w.ok(&AlterTopicConfig{Topic: uuid(1), Set: map[string]string{"b": "2", "a": "1"}})
	w.refused(&RegisterNode{Name: "n4", Identity: identityOf("n4", 1, 2), At: 3}, CodePending)
	w.ok(&UpdateNode{Name: "n5", State: NodeDraining})
	w.ok(&CreateTopic{ID: uuid(2), Name: "gone", Ranges: [][]vtop.NodeName{{"n3"}}})
	w.ok(&DeleteTopic{ID: uuid(2), At: 9})
	w.ok(&AllocateProducerIDs{Node: "n1", Incarnation: 1, Count: 100})
	return w.s
}

func save(t testing.TB, s *State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// everything a state holds, as plain values.
func contents(s *State) []any {
	out := []any{s.index, s.cluster, s.lastBroker, s.lastReplica, s.nextProducerID, s.firstEpoch, s.lastRepair}
	for n := range s.Nodes() {
		out = append(out, *n)
	}
	for topic := range s.Topics() {
		out = append(out, *topic)
	}
	for r := range s.Ranges() {
		out = append(out, *r)
	}
	for seg := range all(s.segments) {
		out = append(out, *seg)
	}
	for stone := range s.Tombstones() {
		out = append(out, *stone)
	}
	for job := range s.Repairs() {
		out = append(out, *job)
	}
	for c := range s.Coordinators() {
		out = append(out, *c)
	}
	for q := range s.ClientQuotas() {
		out = append(out, *q)
	}
	for g := range s.Groups() {
		out = append(out, *g)
		for m := range s.Members(g.ID) {
			out = append(out, *m)
		}
		for o := range s.Offsets(g.ID) {
			out = append(out, *o)
		}
	}
	return out
}

func TestState_SaveAndLoadEveryField(t *testing.T) {
	s := richState(t)
	back, err := Load(bytes.NewReader(save(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	a, b := contents(s), contents(back)
	for i := range a {
		if !reflect.DeepEqual(a[i], b[i]) {
			t.Errorf("saved  %+v\nloaded %+v", a[i], b[i])
		}
	}
	if len(a) != len(b) || s.Hash() != back.Hash() {
		t.Errorf("%d objects saved, %d loaded", len(a), len(b))
	}
}

// Snapshots of running clusters are read by later builds.
func TestState_GoldenSnapshot(t *testing.T) {
	compareGolden(t, "testdata/snapshot.golden", []byte(hex.EncodeToString(save(t, richState(t)))+"\n"))
}

// One bit anywhere, or a cut anywhere, and nothing is loaded.
func TestLoad_RefusesEveryDamage(t *testing.T) {
	good := save(t, richState(t))
	for i := range good {
		if _, err := Load(bytes.NewReader(good[:i])); err == nil {
			t.Fatalf("loaded %d of %d bytes", i, len(good))
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if _, err := Load(bytes.NewReader(bad)); err == nil {
			t.Fatalf("loaded with byte %d flipped", i)
		}
	}
	if _, err := Load(bytes.NewReader(append(bytes.Clone(good), 0))); err == nil {
		t.Error("loaded with a byte too many")
	}
}

// rewrite makes a well-formed file of the given records.
func rewrite(records ...func(*recordWriter)) []byte {
	var b bytes.Buffer
	w := &recordWriter{w: &b, crc: newCRC()}
	w.bytes(append([]byte(stateMagic), 0, stateFormat))
	for _, r := range records {
		r(w)
	}
	w.bytes(binary.BigEndian.AppendUint64([]byte{recordEnd}, w.n))
	return sealed(b.Bytes())
}

// sealed puts the right checksum behind a file without one.
func sealed(b []byte) []byte {
	crc := newCRC()
	crc.Write(b)
	return binary.BigEndian.AppendUint32(b, crc.Sum32())
}

func TestLoad_RefusesWhatDoesNotFit(t *testing.T) {
	s := richState(t)
	rec := func(kind byte, m proto.Message) func(*recordWriter) {
		return func(w *recordWriter) { w.record(kind, m) }
	}
	cluster := rec(recordCluster, s.putCluster())
	n1, _ := s.Node("n1")
	topic, _ := s.TopicByName("lines")
	newer := s.putCluster()
	newer.Level = uint32(LevelMax) + 1
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"nothing":                {nil, "EOF"},
		"another file":           {make([]byte, 100), "not a state"},
		"a newer format":         {sealed(append([]byte(stateMagic), 0, 9)), "format 9"},
		"no cluster":             {rewrite(rec(recordNode, putNode(n1))), "kind 2 after kind 0"},
		"two clusters":           {rewrite(cluster, cluster), "kind 1 after kind 1"},
		"kinds out of order":     {rewrite(cluster, rec(recordTopic, putTopic(topic)), rec(recordNode, putNode(n1))), "kind 2 after kind 3"},
		"an unknown kind":        {rewrite(cluster, rec(12, s.putCluster())), "kind 12"},
		"a node twice":           {rewrite(cluster, rec(recordNode, putNode(n1)), rec(recordNode, putNode(n1))), "twice"},
		"a topic without ranges": {rewrite(cluster, rec(recordTopic, putTopic(topic))), "0 ranges found"},
		"a higher feature level": {rewrite(rec(recordCluster, newer)), "feature level 2"},
		"garbage in a record":    {rewrite(func(w *recordWriter) { w.n++; w.bytes([]byte{1, 0, 0, 0, 1, 0xff}) }), "kind 1"},
		"a record over the cap":  {rewrite(func(w *recordWriter) { w.n++; w.bytes([]byte{1, 0x7f, 0xff, 0xff, 0xff}) }), "at most"},
	} {
		if _, err := Load(bytes.NewReader(c.b)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
	if _, err := Load(bytes.NewReader(rewrite(cluster))); err != nil {
		t.Errorf("a cluster alone: %v", err)
	}
}

// A length is believed only as far as bytes are there (I13).
func TestLoad_LyingLengthAllocatesLittle(t *testing.T) {
	lie := append([]byte(stateMagic), 0, stateFormat, recordCluster)
	lie = binary.BigEndian.AppendUint32(lie, MaxRecord)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := Load(bytes.NewReader(lie)); err == nil {
			t.Fatal("loaded")
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 100*8*recordStep {
		t.Errorf("100 lies of %d bytes allocated %d", MaxRecord, grown)
	}
}

func FuzzLoad(f *testing.F) {
	w := newWorld(&testing.T{})
	w.lead("n1", 3)
	f.Add(save(f, w.s))
	f.Add(save(f, richState(&testing.T{})))
	f.Add(save(f, repairState(&testing.T{})))
	f.Add(save(f, groupState(&testing.T{})))
	f.Add(save(f, NewState()))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The checksum would keep the fuzzer out: try the bytes as they are, and with the right one.
		for _, b := range [][]byte{b, sealed(bytes.Clone(b[:max(0, len(b)-4)]))} {
			s, err := Load(bytes.NewReader(b))
			if err != nil {
				continue
			}
			back, err := Load(bytes.NewReader(save(t, s)))
			if err != nil || back.Hash() != s.Hash() {
				t.Fatalf("a state that was loaded does not come back: %v", err)
			}
		}
	})
}

func TestResult_RoundTrip(t *testing.T) {
	for _, o := range []Outcome{
		{},
		{Index: 7, Refusal: refusef(CodeGap, "why")},
		{Index: 7, Items: []Item{{Range: r0, Epoch: 3}, {Range: rangeID(2, 5), Refusal: refusef(CodeStaleEpoch, "why")}}},
		{Items: []Item{{Range: r0, Repair: 9, Existing: true}, {Repair: 10, Refusal: refusef(CodeWhole, "why")}}},
		{Items: []Item{{Slot: 9, Group: "g\xff", Epoch: 3}, {Slot: 1, Group: "h", Refusal: refusef(CodeOvertaken, "why")}}},
		{Registration: Registration{1, uuid(2), 3}, ReplicaID: 4, ConfigVersion: 5, ProducerIDs: ProducerBlock{6, 7}},
	} {
		b, err := EncodeResult(o)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeResult(b)
		if err != nil || !reflect.DeepEqual(o, back) {
			t.Errorf("wrote %+v, read %+v (%v)", o, back, err)
		}
	}
	for _, bad := range [][]byte{{0xff}, make([]byte, MaxResult+1), {0x2a, 1, 9}} {
		if _, err := DecodeResult(bad); err == nil {
			t.Errorf("decoded %d bad bytes", len(bad))
		}
	}
}

func FuzzDecodeResult(f *testing.F) {
	for _, o := range []Outcome{{Index: 7, Refusal: refusef(CodeGap, "why")}, {Items: []Item{{Range: r0, Epoch: 3}}}} {
		b, err := EncodeResult(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := DecodeResult(b)
		if err != nil {
			return
		}
		again, err := EncodeResult(o)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeResult(again); err != nil || !reflect.DeepEqual(o, back) {
			t.Fatalf("wrote %+v, read %+v (%v)", o, back, err)
		}
	})
}

// Codes travel between builds: each has a name and one number for ever, and matches its sentinel on the other side, too.
func TestRefusal_MatchesAcrossTheWire(t *testing.T) {
	if CodeOvertaken != 35 || len(codeNames) != 36 {
		t.Error("codes are only ever appended: extend this test with the new last one")
	}
	names := map[string]Code{}
	for c := CodeInvalid; c <= CodeOvertaken; c++ {
		if other, ok := names[c.String()]; ok || c.String() == "" {
			t.Errorf("codes %d and %d are both named %q", other, uint32(c), c)
		}
		names[c.String()] = c
	}
	if Code(999).String() != "code 999" || Code(0).String() != "code 0" {
		t.Error("unknown codes are named by their number")
	}
	for code, sentinel := range map[Code]error{
		CodeUnknownRange: vtop.ErrUnknownRange, CodeStaleEpoch: vtop.ErrFenced, CodeStaleIncarnation: vtop.ErrFenced,
		CodeReplicaLost: vtop.ErrReplicaLost, CodeRestoredCopy: vtop.ErrReplicaLost,
		CodeNotBootstrapped: vtop.ErrNotReady, CodeNotStarted: vtop.ErrNotReady, CodeNotSettled: vtop.ErrNotReady,
	} {
		b, err := EncodeResult(Outcome{Refusal: refusef(code, "why")})
		if err != nil {
			t.Fatal(err)
		}
		o, err := DecodeResult(b)
		if err != nil || !errors.Is(fmt.Errorf("propose: %w", o.Err()), sentinel) || errors.Is(o.Err(), vtop.ErrNoSpace) {
			t.Errorf("%s does not match %v", code, sentinel)
		}
		if !errors.Is(o.Err(), &Refusal{Code: code}) || errors.Is(o.Err(), &Refusal{Code: CodeLimit}) {
			t.Errorf("%s does not match its code", code)
		}
	}
	if (Outcome{}).Err() != nil || (Item{}).Err() != nil {
		t.Error("no refusal is no error")
	}
}
