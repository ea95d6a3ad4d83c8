package meta

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport/peerpb"

	"google.golang.org/protobuf/proto"
)

func exampleMeta() nodeMeta {
	return nodeMeta{Name: "n1", Storage: vtop.UUID{1, 2}, Incarnation: 7, ServerID: "n1/ab", Peer: "10.0.0.1:9640"}
}

func TestNodeMeta_RoundTrip(t *testing.T) {
	raw, err := exampleMeta().encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeNodeMeta(raw)
	if err != nil || got != exampleMeta() {
		t.Fatalf("%+v %v", got, err)
	}
	// Case: every cut is refused.
	for i := range raw {
		if _, err := decodeNodeMeta(raw[:i]); err == nil {
			t.Fatalf("%d of %d bytes were taken", i, len(raw))
		}
	}
	// Case: more than memberlist can carry is refused before it panics.
	long := exampleMeta()
	long.Name, long.ServerID = vtop.NodeName(strings.Repeat("x", 250)), strings.Repeat("x", 255)
	if raw, err := long.encode(); err == nil {
		t.Fatalf("%d bytes of meta, memberlist takes %d", len(raw), memberlist.MetaMaxSize)
	}
}

func FuzzNodeMeta(f *testing.F) {
	raw, _ := exampleMeta().encode()
	f.Add(raw)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeNodeMeta(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil || !bytes.HasPrefix(b, again) {
			t.Fatalf("%x decodes to %+v, which encodes to %x (%v)", b, m, again, err)
		}
	})
}

func exampleBirth() *birth {
	return &birth{Cluster: vtop.UUID{9}.String(), Coordinator: "a", Members: []member{
		{Name: "a", Storage: vtop.UUID{1}.String(), ServerID: "a/1", Peer: "x:1"},
		{Name: "b", Storage: vtop.UUID{2}.String(), ServerID: "b/1", Peer: "x:2"},
	}}
}

func FuzzBornState(f *testing.F) {
	raw, _ := json.Marshal(bornState{Version: 1, Pledge: exampleBirth(), Cluster: exampleBirth().Cluster, Founder: true, Generation: 1})
	f.Add(raw)
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := decodeBorn(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		if st2, err := decodeBorn(again); err != nil || !reflect.DeepEqual(st, st2) {
			t.Fatalf("%s decodes to %+v, then %+v (%v)", b, st, st2, err)
		}
	})
}

func FuzzPledgeRequest(f *testing.F) {
	b := exampleBirth()
	p := b.pb()
	raw, _ := proto.Marshal(&peerpb.PledgeRequest{ClusterId: p.GetClusterId(), Coordinator: p.GetMembers()[0], Members: p.GetMembers()})
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req peerpb.PledgeRequest
		if proto.Unmarshal(raw, &req) != nil {
			return
		}
		got, err := birthFrom(req.GetClusterId(), req.GetCoordinator().GetName(), req.GetMembers())
		if err == nil && got.validate() != nil {
			t.Fatalf("took %+v: %v", got, got.validate())
		}
	})
}

func TestBirth_Validate(t *testing.T) {
	for what, spoil := range map[string]func(*birth){
		"no members":            func(b *birth) { b.Members = nil },
		"coordinator elsewhere": func(b *birth) { b.Coordinator = "z" },
		"two of one name":       func(b *birth) { b.Members[1].Name = "a" },
		"no server id":          func(b *birth) { b.Members[1].ServerID = "" },
		"too many":              func(b *birth) { b.Members = make([]member, maxMembers+1) },
		"no cluster id":         func(b *birth) { b.Cluster = "x" },
	} {
		b := exampleBirth()
		if spoil(b); b.validate() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// One pledge per node, for ever: what a restart finds is what was answered.
func TestBornStore_OnePledge(t *testing.T) {
	fs := vfs.NewCrashFS(1)
	s, err := openBorn(fs, "/m")
	if err != nil {
		t.Fatal(err)
	}
	b := exampleBirth()
	self := b.Members[1]
	if _, err := s.pledge(b, self); err != nil {
		t.Fatal(err)
	}
	fs = fs.CrashClone(rand.New(rand.NewPCG(1, 1)), vfs.KeepNone())
	if s, err = openBorn(fs, "/m"); err != nil || s.get().Pledge == nil {
		t.Fatalf("pledge lost in a power cut: %v", err)
	}
	other := exampleBirth()
	other.Cluster, other.Coordinator = vtop.UUID{8}.String(), "b"
	if _, err := s.pledge(other, self); err == nil {
		t.Fatal("pledged to two coordinators")
	}
	if _, err := s.join(other.Cluster, 1, other, self); err == nil {
		t.Fatal("joined another cluster under a pledge")
	}
	wiped := self
	wiped.Storage = vtop.UUID{77}.String()
	if _, err := s.pledge(b, wiped); err == nil {
		t.Fatal("pledged for a disk that is not there")
	}
	if _, err := s.join(b.Cluster, 1, nil, self); err != nil || !s.get().Founder {
		t.Fatalf("founder did not become one: %v", err)
	}
	if _, err := s.join(other.Cluster, 1, other, self); err == nil {
		t.Fatal("changed its cluster")
	}
}

func TestBook_HigherIncarnationWins(t *testing.T) {
	fs := vfs.NewCrashFS(1)
	_ = fs.MkdirAll("/m")
	b, err := openBook(fs, "/m")
	if err != nil {
		t.Fatal(err)
	}
	at := func(addr string, inc vtop.Incarnation, server string) peer {
		return peer{Name: "a", Storage: "s", ServerID: server, Incarnation: inc, Addresses: fsm.Addresses{Peer: addr}}
	}
	b.learn(at("x:1", 2, "a/1"))
	if b.learn(at("x:9", 1, "a/1")) {
		t.Fatal("believed an earlier start")
	}
	b.learn(at("x:2", 3, "a/1"))
	if p, _ := b.byServer("a/1"); p.Addresses.Peer != "x:2" {
		t.Fatalf("a is at %v", p)
	}
	// Case: the same disk with a new raft server replaces the old.
	b.learn(at("x:2", 4, "a/2"))
	if _, ok := b.byServer("a/1"); ok || len(b.list()) != 1 {
		t.Fatalf("kept %v", b.list())
	}
	if err := b.save(); err != nil {
		t.Fatal(err)
	}
	if b, err = openBook(fs, "/m"); err != nil || len(b.list()) != 1 {
		t.Fatalf("after a restart: %v %v", b.list(), err)
	}
}

func TestConfig_Complete(t *testing.T) {
	c := Config{Join: []string{"h1", "h2:77", " h1:9640 ", ""}}
	if err := c.completeJoin(); err != nil || strings.Join(c.Join, " ") != "h1:9640 h2:77" {
		t.Fatalf("join %v %v", c.Join, err)
	}
	for key, ok := range map[string]bool{"": true, "MTIzNDU2Nzg5MDEyMzQ1Ng==": true, "MTIz": false, "%": false} {
		c := Config{GossipKey: key}
		if err := c.completeKey(); (err == nil) != ok {
			t.Errorf("key %q: %v", key, err)
		}
	}
}
