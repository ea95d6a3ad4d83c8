package fsm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vtop-log/vtop"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// samples holds one command of each op, with every field set.
func samples() []Command {
	addresses := Addresses{"k:1", "p:2", "g:3", "a:4"}
	rack := "r"
	places := [][]vtop.NodeName{{"n1", "n2"}, {"n2", "n3"}}
	root := [32]byte{1, 2, 3}
	return []Command{
		&BootstrapCluster{ID: uuid(1), Level: 1, At: 2},
		&RegisterNode{Name: "n1", Identity: identityOf("n1", 7, 3), Expected: 2, HolderAlive: true, ReplicasLost: "why", At: 4},
		&AdmitPending{Name: "n1", Storage: uuid(2), Reason: "why", At: 3},
		&UpdateNode{Name: "n1", Incarnation: 2, Addresses: &addresses, Rack: &rack, State: NodeDraining},
		&CreateTopic{ID: uuid(3), Name: "lines", Config: map[string]string{"b": "2", "a": "1"}, Ranges: places, At: 5},
		&DeleteTopic{ID: uuid(3), At: 6},
		&CreateRanges{Topic: uuid(3), Expected: 2, Ranges: places},
		&AlterTopicConfig{Topic: uuid(3), Expected: 1, Set: map[string]string{"d": "4", "c": "3"}, Delete: []string{"b", "a"}},
		&GrantLeases{Items: []Grant{{rangeID(3, 1), "n1", 2, 3, 4, "why"}}, At: 5},
		&StartEpochs{Items: []EpochStart{{rangeID(3, 1), 4, 100}}, At: 5},
		&ReleaseLeases{Items: []Release{{rangeID(3, 1), 4, "why"}}, At: 5},
		&ReportFloors{Items: []FloorReport{{rangeID(3, 1), 4, 5, 90, -1, 100}}},
		&MoveLogStart{Range: rangeID(3, 1), Epoch: 4, Start: 50},
		&RegisterSegment{Range: rangeID(3, 1), Epoch: 4, Config: 5, Base: 10, End: 20, Bytes: 300, Root: root, SealedAt: 7},
		&ChangeReplicas{Range: rangeID(3, 1), Epoch: 4, Config: 5, Change: RemoveVoter, ReplicaID: 6, SettleMark: 70},
		&MarkReplicasLost{Node: "n1", Storage: uuid(2), Incarnation: 3, Items: []LostReplica{{rangeID(3, 1), 6}}, Reason: "why", At: 7},
		&AllocateProducerIDs{Node: "n1", Incarnation: 2, Count: 1000},
		&SetFeatureLevel{Level: 2},
		&SubmitRepairs{Items: []RepairRequest{{
			Range: rangeID(3, 1), Destination: "n4", Replace: "n2", SealTail: true, Sources: []vtop.NodeName{"n1", "n3"},
			MaxRate: 50_000_000, Origin: OriginDrain, Reason: "why", Holes: true, Config: 5,
		}}, At: 7},
		&UpdateRepairs{Node: "n4", Incarnation: 3, Items: []RepairUpdate{{ID: 8, StepVersion: 9, Step: RepairDone, Progress: everyProgress()}}, At: 7},
		&CancelRepairs{IDs: []RepairID{8, 9}, Reason: "why", At: 7},
		&SetHeal{Paused: true, Why: "why", At: 7},
		&RemoveNode{Name: "n4", Incarnation: 3},
		&RecoverRange{Range: rangeID(3, 1), Keep: 6, Config: 5, Epoch: 4, From: 70, To: 90, Reason: "why", At: 7},
		&GrantCoordinators{Items: []CoordinatorGrant{{Slot: 63, Holder: "n1", Incarnation: 2, Expected: 3, Reason: "why"}}, At: 5},
		&ReleaseCoordinators{Node: "n1", Incarnation: 2},
		&UpdateGroups{Node: "n1", Incarnation: 2, Sequence: 9, Items: everyItem(), At: 7},
		&SetPreferred{Items: []Preference{{rangeID(3, 1), []vtop.NodeName{"n4", "n1"}}}},
		&AlterClientQuotas{Items: everyQuota()},
	}
}

// everyQuota are items of AlterClientQuotas with every field set between them.
func everyQuota() []QuotaChange {
	return []QuotaChange{
		{Client: "c\xff", SetProduce: true, SetFetch: true, Produce: 1 << 20, Fetch: 2 << 20},
		{Default: true, SetFetch: true, Fetch: 3 << 20},
	}
}

// everyItem are items of UpdateGroups with every field set between them.
func everyItem() []GroupItem {
	return []GroupItem{{
		Group: "readers", Epoch: 4,
		Header: &GroupHeader{
			Kind: GroupConsumer, Epoch: 5, AssignmentEpoch: 6, ProtocolType: "consumer", Protocol: "range", Leader: "m1", EmptySince: 7, Data: []byte{8},
		},
		RemoveMembers: []string{"m0"},
		PutMembers: []GroupMember{{
			ID: "m1", InstanceID: "i1", ClientID: "c\xff", ClientHost: "10.0.0.1", Rack: "r", RebalanceTimeoutMS: 9, SessionTimeoutMS: 10,
			Epoch: 11, PreviousEpoch: 12, State: 13, Subscription: []byte{14}, Assignment: []byte{15}, Target: []byte{16},
		}},
		DropOffsets: []vtop.Range{rangeID(3, 1)},
		PutOffsets:  []GroupOffset{{Range: rangeID(3, 2), Offset: 17, LeaderEpoch: 18, Metadata: "m", CommittedAt: 19}},
	}, {Group: "others", Epoch: 4, Delete: true}}
}

// everyProgress is that of a job that is done, with every field set.
func everyProgress() RepairProgress {
	return RepairProgress{
		Replica: 6, Epoch: 4, SealedEnd: 100, RecordsSealed: 30, Segments: 2, BytesTotal: 3000, BytesDone: 2000, BytesPerSecond: 500,
		ActiveSources: []vtop.NodeName{"n1"}, DroppedSources: []DroppedSource{{"n3", "bad chunk"}}, LastError: "broken pipe", Waiting: "no source",
		Outcome: OutcomeGap, Cause: "retention reclaimed [10, 20)", LogEnd: 110, Floor: 105, Gap: 10, Voter: true,
	}
}

func TestCommands_TableIsComplete(t *testing.T) {
	all := samples()
	if len(all) != len(commands) {
		t.Fatalf("%d samples, %d commands in the table", len(all), len(commands))
	}
	for i, row := range commands {
		if row.op != Op(i+1) {
			t.Errorf("row %d holds op %d: rows stand in order of their ops", i, row.op)
		}
		if row.since < LevelFirst || row.since > LevelMax {
			t.Errorf("%s: since level %d", row.name, row.since)
		}
		if got := reflect.TypeOf(all[i]).Elem().Name(); got != row.name {
			t.Errorf("row %d is named %s, the struct %s", i, row.name, got)
		}
		if all[i].Op() != row.op {
			t.Errorf("%s answers op %d", row.name, all[i].Op())
		}
	}
}

// A field that the encoding forgets would be seen here: every field of a sample is set, and comes back.
func TestCommands_RoundTripEveryField(t *testing.T) {
	for _, cmd := range append(samples(), &ChangeReplicas{
		Range: rangeID(3, 1), Epoch: 4, Config: 5, Change: AddLearner, Node: "n4", SettleMark: 70,
	}) {
		switch {
		case cmd.Op() == OpChangeReplicas: // node and replica id exclude each other
		case cmd.Op() == OpAlterClientQuotas: // and a client id and the default
			item := cmd.(*AlterClientQuotas).Items[0]
			item.Default = true
			noZero(t, "AlterClientQuotas.Items[0]", reflect.ValueOf(item))
		case cmd.Op() == OpUpdateGroups: // and so do the deletion of a group and its update
			item := cmd.(*UpdateGroups).Items[0]
			item.Delete = true
			noZero(t, "UpdateGroups.Items[0]", reflect.ValueOf(item))
		default:
			noZero(t, cmd.Op().String(), reflect.ValueOf(cmd))
		}
		b, err := Encode(cmd)
		if err != nil {
			t.Fatalf("%s: %v", cmd.Op(), err)
		}
		back, err := Decode(b)
		if err != nil {
			t.Fatalf("%s: %v", cmd.Op(), err)
		}
		if !reflect.DeepEqual(cmd, back) {
			t.Errorf("%s:\n wrote %+v\n read  %+v", cmd.Op(), cmd, back)
		}
	}
}

func noZero(t *testing.T, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		noZero(t, path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			noZero(t, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			noZero(t, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	}
	if v.IsZero() {
		t.Errorf("sample leaves %s zero", path)
	}
}

// The bytes of every command are for ever: they stand in the logs of running clusters.
func TestCommands_GoldenEncoding(t *testing.T) {
	var got bytes.Buffer
	for _, cmd := range samples() {
		b, err := Encode(cmd)
		if err != nil {
			t.Fatalf("%s: %v", cmd.Op(), err)
		}
		fmt.Fprintf(&got, "%d %s %s\n", uint16(cmd.Op()), cmd.Op(), hex.EncodeToString(b))
	}
	compareGolden(t, "testdata/commands.golden", got.Bytes())
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs: a changed encoding cannot read the logs and snapshots that exist\n got %.2000q\nwant %.2000q", name, got, want)
	}
}

func TestDecode_RefusesWhatItDoesNotKnow(t *testing.T) {
	good, err := Encode(&SetFeatureLevel{Level: 2})
	if err != nil {
		t.Fatal(err)
	}
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 100, protowire.VarintType), 1)
	item, err := Encode(&StartEpochs{Items: []EpochStart{{rangeID(3, 1), 4, 100}}})
	if err != nil {
		t.Fatal(err)
	}
	body := append(append([]byte(nil), item[3+2:]...), unknown...) // the one item, with a field of a newer build
	nested := protowire.AppendBytes(protowire.AppendTag(append([]byte(nil), item[:3]...), 1, protowire.BytesType), body)
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":                     {nil, "0 bytes"},
		"another format":            {append([]byte{2}, good[1:]...), "format 2"},
		"an unknown op":             {[]byte{1, 0, byte(len(commands) + 1)}, "unknown command"},
		"op 0":                      {[]byte{1, 0, 0}, "unknown command"},
		"a field of a newer build":  {append(append([]byte(nil), good...), unknown...), "does not know"},
		"an unknown field in items": {nested, "does not know"},
		"a torn message":            {good[:len(good)-1], "SetFeatureLevel"},
		"a short uuid":              {[]byte{1, 0, 6, 0x0a, 1, 9}, "uuid of 1 bytes"},
		"too long":                  {make([]byte, MaxCommand+1), "bytes: want"},
	} {
		if _, err := Decode(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
}

func TestEncode_RefusesBadShape(t *testing.T) {
	long := strings.Repeat("x", MaxValue+1)
	one := [][]vtop.NodeName{{"n1"}}
	for name, c := range map[string]struct {
		cmd  Command
		code Code
	}{
		"no cluster id":          {&BootstrapCluster{Level: 1}, CodeInvalid},
		"no identity":            {&RegisterNode{Name: "n1"}, CodeInvalid},
		"topic name with slash":  {&CreateTopic{ID: uuid(1), Name: "a/b", Ranges: one}, CodeInvalid},
		"topic without ranges":   {&CreateTopic{ID: uuid(1), Name: "a"}, CodeInvalid},
		"range without replicas": {&CreateTopic{ID: uuid(1), Name: "a", Ranges: make([][]vtop.NodeName, 1)}, CodeInvalid},
		"two replicas on a node": {&CreateTopic{ID: uuid(1), Name: "a", Ranges: [][]vtop.NodeName{{"n1", "n1"}}}, CodeInvalid},
		"too many ranges":        {&CreateTopic{ID: uuid(1), Name: "a", Ranges: make([][]vtop.NodeName, MaxRangesPerTopic+1)}, CodeLimit},
		"a long value":           {&AlterTopicConfig{Topic: uuid(1), Set: map[string]string{"k": long}}, CodeLimit},
		"an empty batch":         {&GrantLeases{}, CodeInvalid},
		"too many items":         {&ReleaseLeases{Items: make([]Release, MaxItems+1)}, CodeLimit},
		"floor above log end":    {&ReportFloors{Items: []FloorReport{{r0, 1, 1, 5, 4, 4}}}, CodeInvalid},
		"quorum above log end":   {&ReportFloors{Items: []FloorReport{{r0, 1, 1, 4, 5, 4}}}, CodeInvalid},
		"negative start":         {&StartEpochs{Items: []EpochStart{{r0, 1, -1}}}, CodeInvalid},
		"an empty segment":       {&RegisterSegment{Range: r0, Epoch: 1, Config: 1, Base: 5, End: 5, Bytes: 1, Root: [32]byte{1}}, CodeInvalid},
		"learner with an id":     {&ChangeReplicas{Range: r0, Epoch: 1, Config: 1, Change: AddLearner, Node: "n1", ReplicaID: 1}, CodeInvalid},
		"lost without a reason":  {&MarkReplicasLost{Node: "n1", Storage: uuid(1), Incarnation: 1, Items: []LostReplica{{r0, 1}}}, CodeInvalid},
		"a block of no ids":      {&AllocateProducerIDs{Node: "n1", Incarnation: 1}, CodeInvalid},
		"text that is not utf-8": {&ReleaseLeases{Items: []Release{{r0, 1, "\xff"}}}, CodeInvalid},
	} {
		_, err := Encode(c.cmd)
		if !errors.Is(err, &Refusal{Code: c.code}) {
			t.Errorf("%s: error %v, want code %q", name, err, c.code)
		}
	}
}

func TestCheckProposal(t *testing.T) {
	fresh := NewState()
	if err := fresh.CheckProposal(&AllocateProducerIDs{Node: "n1", Incarnation: 1, Count: 1}); !errors.Is(err, vtop.ErrNotReady) {
		t.Errorf("before bootstrap: %v", err)
	}
	if err := fresh.CheckProposal(&BootstrapCluster{ID: uuid(1), Level: 1}); err != nil {
		t.Errorf("bootstrap: %v", err)
	}
	w := newWorld(t)
	if err := w.s.CheckProposal(&GrantLeases{}); !errors.Is(err, &Refusal{Code: CodeInvalid}) {
		t.Errorf("bad shape: %v", err)
	}
	if err := w.s.CheckProposal(w.grantOf("n1")); err != nil {
		t.Errorf("grant: %v", err)
	}
	below := w.s.fork()
	below.cluster.Level = 0 // as a command of a later level looks to a cluster that was not raised yet
	if err := below.CheckProposal(w.grantOf("n1")); !errors.Is(err, &Refusal{Code: CodeLevel}) {
		t.Errorf("above the cluster's level: %v", err)
	}
	if _, outs := below.Apply(99, w.grantOf("n1")); outs[0].Refusal == nil || outs[0].Refusal.Code != CodeLevel {
		t.Errorf("apply above the cluster's level: %+v", outs[0])
	}
}

func FuzzDecode(f *testing.F) {
	for _, cmd := range samples() {
		b, err := Encode(cmd)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{1, 0, 9, 0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	w := newWorld(&testing.T{})
	w.lead("n1", 0)
	w.grantSlot("readers", "n1")
	w.grantSlot("others", "n1")
	f.Fuzz(func(t *testing.T, b []byte) {
		cmd, err := Decode(b)
		if err != nil {
			return
		}
		// What was decoded can be applied, whatever its shape, and breaks no invariant.
		if level, ok := cmd.(*SetFeatureLevel); ok && level.Level > LevelMax {
			return // stops the node, as it should
		}
		next, _ := w.s.Apply(w.s.Index()+1, cmd)
		if err := next.Check(); err != nil {
			t.Fatalf("%+v: %v", cmd, err)
		}
		again, err := Encode(cmd)
		if err != nil {
			return // a shape that no proposer sends
		}
		back, err := Decode(again)
		if err != nil || !reflect.DeepEqual(cmd, back) {
			t.Fatalf("wrote %+v, read %+v (%v)", cmd, back, err)
		}
	})
}
