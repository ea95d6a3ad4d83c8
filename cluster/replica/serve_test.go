package replica

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// F1: retention that is smaller than the tail cannot take what the seal pinned, and no retention runs in the seal.
func TestSealTail_RetentionCannotTakeThePin(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.topic = c.createTopic("short", 1, map[string]string{"retention.bytes": "1"}, c.names...)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.fill(r, 4<<10)
	resp, err := c.sealAt(waiting(t), "b", "a", c.sealRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	s := c.wantSealed("a", r, resp, 4, 4)
	if c.rangeOf(r).LogStart != 0 {
		t.Fatal("retention ran in the seal")
	}
	a.fill(r, 2<<10)
	if _, err := c.sealAt(waiting(t), "b", "a", c.sealRequest(r)); err != nil {
		t.Fatal(err)
	}
	c.await("retention to take the sealed segment", func() bool {
		c.duties("a")
		return a.store.Get(r).Start() >= 4 && c.gone("a", r, 0)
	})
	seg := s.Segments[0]
	buf := make([]byte, seg.Bytes)
	if _, err := c.nodes["b"].client.FetchRange(waiting(t), c.targetOf("a"), s.Ref(r, seg), 0, buf); err != nil {
		t.Fatalf("the pinned segment: %v", err)
	}
	// Case: the pin is released, and the cause is named.
	rel, err := c.nodes["b"].client.ReleasePin(waiting(t), c.targetOf("a"), &peerpb.ReleasePinRequest{Range: rangeTo(r), Pin: s.Pin})
	if err != nil || !rel.GetReleased() {
		t.Fatalf("release: %v %v", rel, err)
	}
	_, err = c.nodes["b"].client.FetchRange(waiting(t), c.targetOf("a"), s.Ref(r, seg), 0, buf)
	if !errors.Is(err, transport.ErrPinGone) {
		t.Fatalf("after the pin: %v", err)
	}
}

func (c *cluster) gone(name vtop.NodeName, r vtop.Range, base vtop.Offset) bool {
	for _, seg := range c.nodes[name].store.Get(r).Segments() {
		if seg.Base == base {
			return false
		}
	}
	return true
}

func TestPinSegments_SnapshotWithoutSealing(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	ask := func(pin uint64) (*transport.Snapshot, error) {
		resp, err := c.nodes["b"].client.PinSegments(waiting(t), c.targetOf("a"), &peerpb.PinSegmentsRequest{Range: rangeTo(r), Epoch: int32(c.rangeOf(r).LastEpoch), Pin: pin})
		if err != nil {
			return nil, err
		}
		return transport.SnapshotFrom(resp.GetSnapshot())
	}
	// Case: nothing is sealed, nothing was ever written: an empty snapshot.
	s, err := ask(0)
	if err != nil || len(s.Segments) != 0 || s.Pin != 0 || s.SealedEnd != 0 {
		t.Fatalf("empty: %+v %v", s, err)
	}
	a.fill(r, 3<<10)
	if _, err := c.sealAt(waiting(t), "b", "a", c.sealRequest(r)); err != nil {
		t.Fatal(err)
	}
	a.mustProduce(r, "in the tail")
	s, err = ask(0)
	if err != nil || len(s.Segments) != 1 || s.SealedEnd != 3 || s.LogEnd != 4 || s.Pin == 0 {
		t.Fatalf("snapshot: %+v %v", s, err)
	}
	if len(a.store.Get(r).Segments()) != 2 {
		t.Fatal("a pin closed the tail")
	}
	// Case: the same pin again gives the same snapshot, and no second pin.
	pins := len(a.store.Pins())
	again, err := ask(s.Pin)
	if err != nil || again.Pin != s.Pin || again.SealedEnd != s.SealedEnd || len(a.store.Pins()) != pins {
		t.Fatalf("kept: %+v %v", again, err)
	}
	// Case: one that is gone gives a new one.
	a.store.Unpin(storage.PinID(s.Pin))
	if again, err = ask(s.Pin); err != nil || again.Pin == s.Pin || again.Pin == 0 {
		t.Fatalf("after it was gone: %+v %v", again, err)
	}
}

func TestOpenSegment_WhoServesWhat(t *testing.T) {
	c := newCluster(t, 3, 1, withCrashFS())
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].fill(r, 4<<10)
	resp, err := c.sealAt(waiting(t), "b", "a", c.sealRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	s, err := transport.SnapshotFrom(resp.GetSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	seg := s.Segments[0]
	b := c.nodes["b"]
	c.await("b to have sealed it", func() bool { _ = b.engine.Duties(waiting(t)); return sealedBelow(b.store.Get(r), 4) })
	fetch := func(ref transport.SegmentRef) ([]byte, error) {
		buf := make([]byte, seg.Bytes)
		_, err := c.nodes["c"].client.FetchRange(waiting(t), c.targetOf("b"), ref, 0, buf)
		return buf, err
	}
	ref := transport.SegmentRef{Range: r, Base: seg.Base, Root: seg.Root, Size: seg.Bytes, Epoch: s.Epoch}
	if _, err := fetch(ref); err != nil {
		t.Fatalf("a follower is a source, too: %v", err)
	}
	if raw, err := c.nodes["c"].client.FetchManifest(waiting(t), c.targetOf("b"), ref, 1<<20); err != nil || len(raw) == 0 {
		t.Fatalf("manifest: %v", err)
	}
	// Case: another replica, another root, an older epoch.
	wrong := ref
	wrong.Replica = s.Replica
	if _, err := fetch(wrong); !errors.Is(err, vtop.ErrFenced) {
		t.Fatalf("another replica: %v", err)
	}
	wrong = ref
	wrong.Root[0] ^= 1
	if _, err := fetch(wrong); !errors.Is(err, transport.ErrWrongRoot) {
		t.Fatalf("another root: %v", err)
	}
	c.lead("c", r)
	if err := b.machine.WaitApplied(waiting(t), c.state().Index()); err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(ref); !errors.Is(err, vtop.ErrFenced) {
		t.Fatalf("a repair of an earlier lease: %v", err)
	}
	// Case: a flipped bit is found while it is read, never sent, and not served again.
	ref.Epoch = 0
	c.flip("b", r, seg.Base)
	for range 2 {
		if buf, err := fetch(ref); !errors.Is(err, vtop.ErrDamaged) || buf[0] != 0 {
			t.Fatalf("a damaged segment: %v", err)
		}
	}
	if holes := b.store.Get(r).Holes(); len(holes) != 1 {
		t.Fatalf("holes: %+v", holes)
	}
	// Case: a report of damage is looked into: b's is bad, a's is not.
	report := func(node vtop.NodeName) peerpb.DamageVerdict {
		resp, err := c.nodes["c"].client.ReportDamage(waiting(t), c.targetOf(node), &peerpb.ReportDamageRequest{
			Range: rangeTo(r), ReplicaId: uint64(c.nodes[node].store.Get(r).ReplicaID()), Base: int64(seg.Base), Root: seg.Root[:], Reason: "test",
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetVerdict()
	}
	if v := report("b"); v != peerpb.DamageVerdict_DAMAGE_VERDICT_BAD {
		t.Fatalf("b says %s", v)
	}
	if v := report("a"); v != peerpb.DamageVerdict_DAMAGE_VERDICT_OK {
		t.Fatalf("a says %s", v)
	}
}

// flip turns a bit in the middle of a segment's file.
func (c *cluster) flip(name vtop.NodeName, r vtop.Range, base vtop.Offset) {
	c.t.Helper()
	fsys := crashFS(c, name)
	path := filepath.Join(c.dirs[name], "ranges", fmt.Sprintf("%s-%d", r.Topic, r.Index), fmt.Sprintf("%020d.log", base))
	f, err := fsys.OpenRW(path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], 100); err != nil {
		c.t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], 100); err != nil {
		c.t.Fatal(err)
	}
}
