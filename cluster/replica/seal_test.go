package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// sealAt asks the leader over the wire, as the node asker, to seal the range's tail.
func (c *cluster) sealAt(ctx context.Context, asker, leader vtop.NodeName, req *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error) {
	c.t.Helper()
	return c.nodes[asker].client.SealTail(ctx, c.targetOf(leader), req)
}

func (c *cluster) targetOf(name vtop.NodeName) transport.Target {
	return transport.Target{Name: name, Addr: c.address(name)}
}

func (c *cluster) sealRequest(r vtop.Range) *peerpb.SealTailRequest {
	return &peerpb.SealTailRequest{Range: rangeTo(r), Epoch: int32(c.rangeOf(r).LastEpoch)}
}

func waiting(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// wantSealed checks that an answer says what the catalogue and the leader's disk say.
func (c *cluster) wantSealed(leader vtop.NodeName, r vtop.Range, resp *peerpb.SealTailResponse, end vtop.Offset, records int64) *transport.Snapshot {
	c.t.Helper()
	if resp.GetSealedEnd() != int64(end) || resp.GetRecordsSealed() != records {
		c.t.Fatalf("sealed to %d, %d records; want %d, %d", resp.GetSealedEnd(), resp.GetRecordsSealed(), end, records)
	}
	s, err := transport.SnapshotFrom(resp.GetSnapshot())
	if err != nil {
		c.t.Fatal(err)
	}
	if s.SealedEnd != end || c.rangeOf(r).CatalogueEnd != end || c.rangeOf(r).Floor < end {
		c.t.Fatalf("snapshot to %d, catalogue to %d, floor %d; want %d", s.SealedEnd, c.rangeOf(r).CatalogueEnd, c.rangeOf(r).Floor, end)
	}
	for _, seg := range s.Segments {
		entry, ok := c.state().Segment(r, seg.Base)
		if !ok || entry.Root != seg.Root || entry.End != seg.End || entry.Bytes != seg.Bytes || entry.Epoch != seg.SealEpoch {
			c.t.Fatalf("I9: listed %+v, the catalogue has %+v", seg, entry)
		}
	}
	for _, seg := range c.nodes[leader].store.Get(r).Segments() {
		if seg.Base < end && seg.State != storage.SegmentSealed {
			c.t.Fatalf("not durable and sealed at the answer: %+v", seg)
		}
	}
	return s
}

func TestSealTail_AnswersWhenCommittedAndCatalogued(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].fill(r, 8<<10)
	resp, err := c.sealAt(waiting(t), "b", "a", c.sealRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	s := c.wantSealed("a", r, resp, 8, 8)
	if s.Pin == 0 || s.PinIdle <= 0 || s.Replica != c.nodes["a"].store.Get(r).ReplicaID() || len(s.Segments) != 1 {
		t.Fatalf("snapshot: %+v", s)
	}
	// Case: again, over an empty tail; and once more.
	for range 2 {
		again, err := c.sealAt(waiting(t), "b", "a", c.sealRequest(r))
		if err != nil {
			t.Fatal(err)
		}
		c.wantSealed("a", r, again, 8, 0)
	}
	// Case: without a pin.
	c.nodes["a"].mustProduce(r, "x", "y")
	req := c.sealRequest(r)
	req.NoPin = true
	resp, err = c.sealAt(waiting(t), "b", "a", req)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.wantSealed("a", r, resp, 10, 2); s.Pin != 0 || len(s.Segments) != 2 {
		t.Fatalf("snapshot: %+v", s)
	}
	// Case: the followers' next records begin a segment there, too.
	c.nodes["a"].mustProduce(r, "z")
	c.awaitSame("a", r)
	for _, n := range c.nodes {
		segs := n.store.Get(r).Segments()
		if last := segs[len(segs)-1]; last.Base != 10 {
			t.Fatalf("I9: the tail of %s begins at %d", n.name, last.Base)
		}
	}
}

func TestSealTail_Refusals(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	before := c.listing("a")
	// Case: never written.
	_, err := c.sealAt(waiting(t), "b", "a", c.sealRequest(r))
	if !errors.Is(err, transport.ErrNeverWritten) || !strings.Contains(err.Error(), "produce to the range before repairing from it") {
		t.Fatalf("never written: %v", err)
	}
	c.wantListing("a", before)
	c.nodes["a"].mustProduce(r, "x")
	c.awaitSame("a", r)
	before = c.listing("a")
	// Case: a stale epoch, and one from the future.
	for _, epoch := range []int32{0, 2} {
		req := c.sealRequest(r)
		req.Epoch = epoch
		if _, err := c.sealAt(waiting(t), "b", "a", req); !errors.Is(err, vtop.ErrFenced) {
			t.Fatalf("epoch %d: %v", epoch, err)
		}
	}
	// Case: a follower is asked.
	if _, err := c.sealAt(waiting(t), "c", "b", c.sealRequest(r)); !errors.Is(err, vtop.ErrFenced) {
		t.Fatalf("a follower was asked: %v", err)
	}
	// Case: a range that is not there.
	if _, err := c.sealAt(waiting(t), "b", "a", &peerpb.SealTailRequest{Range: rangeTo(vtop.Range{Topic: uuid()}), Epoch: 1}); !errors.Is(err, vtop.ErrUnknownRange) {
		t.Fatalf("unknown range: %v", err)
	}
	c.wantListing("a", before)
	if pins := c.nodes["a"].store.Pins(); len(pins) != 0 {
		t.Fatalf("a refused seal left pins: %+v", pins)
	}
}

// file is what a directory listing shows of one file.
type file struct {
	size  int64
	mtime time.Time
}

// listing is everything below a node's replicas: names, sizes, times.
func (c *cluster) listing(name vtop.NodeName) map[string]file {
	c.t.Helper()
	out := map[string]file{}
	root := filepath.Join(c.dirs[name], "ranges")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			out[strings.TrimPrefix(path, root)] = file{info.Size(), info.ModTime()}
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *cluster) wantListing(name vtop.NodeName, want map[string]file) {
	c.t.Helper()
	if got := c.listing(name); fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Fatalf("the directory of %s has changed:\nbefore %v\nafter  %v", name, want, got)
	}
}

// The lease moves to another node between any two steps of a seal (A4). Before the close the deposed leader refuses and its
// directory is as it was. After it nothing is published or catalogued under the old epoch, unless the entry was taken before
// the lease moved; and the new leader's history says what the closed segment becomes.
func TestSealTail_LeaseMovesBetweenAnyTwoSteps(t *testing.T) {
	for _, step := range []SealStep{SealAsked, SealPinned, SealClosed, SealCommitted, SealCatalogued, SealPublished} {
		t.Run(string(step), func(t *testing.T) {
			var at atomic.Pointer[func()]
			c := newCluster(t, 3, 1, withConfig(func(_ vtop.NodeName, cfg *Config) {
				cfg.SealStep = func(_ vtop.Range, s SealStep) {
					if fn := at.Load(); fn != nil && s == step && at.CompareAndSwap(fn, nil) {
						(*fn)()
					}
				}
			}))
			r := c.r(0)
			c.lead("a", r)
			a := c.nodes["a"]
			a.fill(r, 4<<10)
			c.awaitSame("a", r)
			req := c.sealRequest(r)
			var before map[string]file
			move := func() {
				before = c.listing("a")
				c.grant("b", r)
				if err := a.machine.WaitApplied(waiting(t), c.state().Index()); err != nil {
					t.Error(err)
				}
			}
			at.Store(&move)
			resp, err := c.sealAt(waiting(t), "c", "a", req)
			if at.Load() != nil {
				t.Fatal("the seal never came to the step")
			}
			if !errors.Is(err, vtop.ErrFenced) {
				t.Fatalf("deposed at %q: answered %v, %v", step, resp, err)
			}
			taken := step == SealCatalogued || step == SealPublished // the entry was in the metadata before the grant
			if entry, ok := c.state().LastSegment(r); ok != taken || ok && entry.Epoch != vtop.Epoch(req.Epoch) {
				t.Fatalf("catalogue: %+v, %t", entry, ok)
			}
			if step == SealAsked || step == SealPinned {
				c.wantListing("a", before)
				if segs := a.store.Get(r).Segments(); len(segs) != 1 || segs[0].State != storage.SegmentTail {
					t.Fatalf("A4: segments of the deposed leader: %+v", segs)
				}
			}
			if pins := a.store.Pins(); len(pins) != 0 {
				t.Fatalf("pins left behind: %+v", pins)
			}
			c.goesOn(r, step)
		})
	}
}

// goesOn has b lead after a was deposed in the middle of a seal, and seal the same records: every replica ends up with the same
// segments, and nothing was registered twice.
func (c *cluster) goesOn(r vtop.Range, step SealStep) {
	t := c.t
	t.Helper()
	ctx := waiting(t)
	if err := c.nodes["b"].machine.WaitApplied(ctx, c.state().Index()); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes["b"].engine.WaitLeading(ctx, r); err != nil {
		t.Fatal(err)
	}
	c.nodes["b"].mustProduce(r, "of the next epoch")
	c.awaitSame("b", r)
	resp, err := c.sealAt(ctx, "c", "b", c.sealRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	c.wantSealed("b", r, resp, 5, resp.GetRecordsSealed())
	for _, n := range c.nodes {
		c.await(fmt.Sprintf("after %q %s to have what the catalogue has", step, n.name), func() bool {
			_ = n.engine.Duties(ctx)
			return sealedBelow(n.store.Get(r), 5)
		})
		for _, seg := range n.store.Get(r).Segments() {
			entry, ok := c.state().Segment(r, seg.Base)
			if seg.End > seg.Base && (!ok || entry.End != seg.End || entry.Root != seg.Root || seg.Hole != "") {
				t.Fatalf("I9: %s has %+v, the catalogue %+v", n.name, seg, entry)
			}
		}
	}
}

// impatient has one node give up soon a seal that is not committed. The others wait for as long as a busy machine needs.
func impatient(name vtop.NodeName, limit time.Duration) option {
	return withConfig(func(n vtop.NodeName, cfg *Config) {
		if cfg.SealTimeout = patience; n == name {
			cfg.SealTimeout = limit
		}
	})
}
