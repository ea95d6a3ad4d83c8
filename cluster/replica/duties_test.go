package replica

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/topicconfig"
)

// fill produces about n bytes in batches of 1 KiB.
func (n *node) fill(r vtop.Range, bytes int) {
	for i := 0; i < bytes; i += 1 << 10 {
		n.mustProduce(r, fmt.Sprintf("%06d", i)+strings.Repeat("x", 900))
	}
}

func (c *cluster) duties(on vtop.NodeName) {
	c.t.Helper()
	if err := c.nodes[on].engine.Duties(context.Background()); err != nil {
		c.t.Fatal(err)
	}
}

// catalogued has a leader do its duties until the catalogue has n segments, and returns the last one. A segment that was closed is
// finished by the store in its own time.
func (c *cluster) catalogued(leader vtop.NodeName, r vtop.Range, n int) (last *fsm.Segment) {
	c.t.Helper()
	c.await(fmt.Sprintf("%d segments in the catalogue", n), func() bool {
		c.duties(leader)
		have := 0
		for seg := range c.state().Catalogue(r) {
			last, have = seg, have+1
		}
		return have >= n
	})
	return last
}

func TestDuties_FloorsAreReportedOnlyWhenTheyMoved(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "x", "y")
	c.duties("a")
	rg := c.rangeOf(r)
	if rg.Floor != 2 || rg.QuorumPosition != 2 || !rg.Settled() {
		t.Fatalf("floor %d, quorum position %d, settle mark %d", rg.Floor, rg.QuorumPosition, rg.SettleMark)
	}
	c.awaitSame("a", r)
	c.duties("a")
	before := c.state().Index()
	c.duties("a")
	if after := c.state().Index(); after != before {
		t.Fatalf("an idle range cost %d commands", after-before)
	}
}

// Segments roll at the leader's word, are catalogued once committed, and every replica publishes the same bytes (I9).
func TestDuties_SegmentsAreSealedAlikeEverywhere(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.topic = c.createTopic("small", 1, map[string]string{topicconfig.SegmentBytes: "1048576"}, c.names...)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	value := strings.Repeat("v", 64<<10)
	for range 50 {
		a.mustProduce(r, value)
	}
	c.awaitSame("a", r)
	last := c.catalogued("a", r, 2)
	for _, name := range c.names {
		n := c.nodes[name]
		c.await("the node to know the catalogue", func() bool { return n.machine.Applied() >= c.state().Index() })
		c.await("the node to have sealed", func() bool { c.duties(name); return sealedBelow(n.store.Get(r), last.End) })
		for seg := range c.state().Catalogue(r) {
			sealed := false
			for _, own := range n.store.Get(r).Segments() {
				sealed = sealed || own.Base == seg.Base && own.End == seg.End && own.State == storage.SegmentSealed && own.Root == seg.Root && own.Bytes == seg.Bytes
			}
			if !sealed {
				t.Fatalf("I9: %s has not sealed %d to %d: %+v", name, seg.Base, seg.End, n.store.Get(r).Segments())
			}
		}
	}
}

func TestDuties_RetentionByTimeCountsFromSealing(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	c := newCluster(t, 3, 1, withConfig(func(_ vtop.NodeName, cfg *Config) { cfg.Now = func() time.Time { return now } }))
	c.topic = c.createTopic("short", 1, map[string]string{topicconfig.SegmentBytes: "1048576", topicconfig.RetentionMs: "1000"}, c.names...)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	value := strings.Repeat("v", 64<<10)
	for range 50 {
		a.mustProduce(r, value)
	}
	last := c.catalogued("a", r, 1)
	if rg := c.rangeOf(r); rg.LogStart != 0 {
		t.Fatalf("the records' own times (1 s after 1970) must not count: log start %d", rg.LogStart)
	}
	now = now.Add(2 * time.Second)
	c.duties("a")
	if rg := c.rangeOf(r); rg.LogStart != last.End {
		t.Fatalf("log start %d, want %d", rg.LogStart, last.End)
	}
	for _, name := range c.names {
		log := c.nodes[name].store.Get(r)
		c.await(string(name)+" to follow the log start", func() bool { return log.Start() == last.End })
	}
	if _, err := a.engine.Fetch(r, vtop.FetchSpec{Offset: 0, MaxBytes: 1, ClientEpoch: -1, LastFetchedEpoch: -1}, nil); !errors.Is(err, vtop.ErrOffsetOutOfRange) {
		t.Fatalf("below the log start: %v", err)
	}
	a.mustProduce(r, "goes on")
	c.awaitSame("a", r)
}

func TestDuties_RetentionByBytesKeepsAtLeastWhatIsConfigured(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.topic = c.createTopic("small", 1, map[string]string{topicconfig.SegmentBytes: "1048576", topicconfig.RetentionBytes: "2000000"}, c.names...)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	value := strings.Repeat("v", 64<<10)
	for range 80 {
		a.mustProduce(r, value)
	}
	log := a.store.Get(r)
	c.await("retention", func() bool { c.duties("a"); return log.Start() > 0 })
	c.await("the segments to go", func() bool { c.duties("a"); return log.Info().Bytes < 2_000_000+2<<20 })
	if left := log.Info().Bytes; left < 2_000_000 {
		t.Fatalf("%d bytes are left", left)
	}
}

// F6: with segments of the default size, 1 GiB, a topic that keeps 1 MiB is closed by that: nothing could go else. So is what was written before the setting, though nothing comes after it.
func TestDuties_SmallRetentionClosesLargeSegments(t *testing.T) {
	const kept = 1 << 20
	c := newCluster(t, 3, 1)
	bounded := map[string]string{topicconfig.RetentionBytes: fmt.Sprint(kept)}
	c.topic = c.createTopic("many", 4, bounded, c.names...)
	value := strings.Repeat("v", 64<<10)
	for i := range 4 {
		r := c.r(i)
		c.lead("a", r)
		for range 60 {
			c.nodes["a"].mustProduce(r, value)
		}
		for _, name := range c.names {
			log := c.nodes[name].store.Get(r)
			c.await(string(name)+" to keep little", func() bool { c.duties("a"); return log.Info().Bytes < 2*kept+65<<10 })
			if left := log.Info().Bytes; left < kept {
				t.Fatalf("%d bytes are left on %s", left, name)
			}
		}
	}
	c.topic = c.createTopic("idle", 1, nil, c.names...)
	r := c.r(0)
	c.lead("a", r)
	for range 60 {
		c.nodes["a"].mustProduce(r, value)
	}
	c.duties("a")
	if n := len(c.nodes["a"].store.Get(r).Segments()); n != 1 {
		t.Fatalf("%d segments of a topic that keeps all", n)
	}
	c.mustPropose(&fsm.AlterTopicConfig{Topic: c.topic, Set: bounded})
	c.catalogued("a", r, 1)
}

// A follower that was away while retention passed it begins anew at the log start, with the producer state (D3, B8).
func TestDuties_FollowerBelowTheLogStartIsReset(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.topic = c.createTopic("small", 1, map[string]string{topicconfig.SegmentBytes: "1048576", topicconfig.RetentionBytes: "1000000"}, c.names...)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	if res := c.answer(a.send(r, -1, idempotent(9, 0, "mine"))); res.Err != nil {
		t.Fatal(res.Err)
	}
	c.awaitSame("a", r)
	c.kill("c")
	value := strings.Repeat("v", 64<<10)
	for range 80 {
		a.mustProduce(r, value)
	}
	c.await("retention to move the log start", func() bool { c.duties("a"); return c.rangeOf(r).LogStart > 0 })
	n := c.start("c")
	c.awaitSame("a", r)
	if got := n.engine.Metrics().Resets; got != 1 {
		t.Fatalf("%d resets, want 1", got)
	}
	c.lead("c", r)
	if res := c.answer(n.send(r, -1, idempotent(9, 0, "mine"))); res.Err != nil || res.Base != 0 {
		t.Fatalf("D3/D4: a duplicate of a record that retention removed: %+v", res)
	}
}

func TestDeleteRecords(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	for i := range 10 {
		a.mustProduce(r, fmt.Sprint(i))
	}
	ctx := context.Background()
	if start, err := a.engine.DeleteRecords(ctx, r, 4); err != nil || start != 4 {
		t.Fatalf("%d %v", start, err)
	}
	if at, err := a.engine.StartOffset(r, vtop.AnyEpoch); err != nil || at.Offset != 4 {
		t.Fatalf("%+v %v", at, err)
	}
	if _, err := a.engine.DeleteRecords(ctx, r, 11); !errors.Is(err, vtop.ErrOffsetOutOfRange) {
		t.Fatalf("above the high watermark: %v", err)
	}
	if start, err := a.engine.DeleteRecords(ctx, r, -1); err != nil || start != 10 {
		t.Fatalf("%d %v", start, err)
	}
	a.mustProduce(r, "goes on")
	// A replica that starts now is fed from a batch below the log start, or reset: either way it agrees.
	c.kill("b")
	c.start("b")
	c.awaitSame("a", r)
}

// E4: a replica that the metadata does not know, of a topic that nobody deleted, is set aside with all its bytes and never deleted.
func TestStart_SetsAsideWhatNobodyDeleted(t *testing.T) {
	c := newCluster(t, 3, 1, withCrashFS())
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "x")
	c.awaitSame("a", r)
	stranger := vtop.Range{Topic: uuid()}
	if _, err := c.nodes["b"].store.Create(stranger, 7, 0); err != nil {
		t.Fatal(err)
	}
	c.kill("b")
	b := c.start("b")
	c.await("the stranger to leave", func() bool { return b.store.Get(stranger) == nil })
	c.awaitSame("a", r)
	kept, err := c.fs["b"].ReadDir(filepath.Join(c.dirs["b"], "aside"))
	if err != nil || len(kept) != 2 || !strings.HasPrefix(kept[0], stranger.Topic.String()) {
		t.Fatalf("aside holds %q: %v", kept, err)
	}
	files, err := c.fs["b"].ReadDir(filepath.Join(c.dirs["b"], "aside", kept[0]))
	if err != nil || len(files) == 0 {
		t.Fatalf("set aside without its files: %q %v", files, err)
	}
}

func TestTopicDeletion_TakesTheDirectoriesAway(t *testing.T) {
	c := newCluster(t, 3, 2)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	c.mustPropose(&fsm.DeleteTopic{ID: c.topic})
	for _, n := range c.nodes {
		c.await("the directories to go", func() bool { return n.store.Get(r) == nil && n.store.Get(c.r(1)) == nil })
	}
	if res := a.produce(r, "y"); !errors.Is(res.Err, vtop.ErrUnknownRange) {
		t.Fatalf("%+v", res)
	}
}
