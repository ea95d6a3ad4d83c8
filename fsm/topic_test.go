package fsm

import (
	"errors"
	"maps"
	"testing"

	"github.com/vtop-log/vtop"
)

func TestCreateTopic(t *testing.T) {
	w := newWorld(t)
	topic, ok := w.s.TopicByName("lines")
	if !ok || topic.ID != uuid(1) || topic.Ranges != 2 {
		t.Fatalf("topic %+v", topic)
	}
	seen := map[vtop.ReplicaID]bool{}
	for r := range w.s.RangesOfTopic(uuid(1)) {
		for _, rep := range r.Replicas {
			if seen[rep.ID] || rep.Role != Voter {
				t.Errorf("replica %+v", rep)
			}
			seen[rep.ID] = true
		}
		if r.Preferred[0] != "n1" || r.ConfigVersion != 1 || r.EverStarted() || r.Settled() {
			t.Errorf("range %+v", r)
		}
	}
	places := [][]vtop.NodeName{{"n1"}}
	w.ok(&CreateTopic{ID: uuid(1), Name: "lines", Ranges: places})
	if w.s.RangeCount() != 2 {
		t.Error("a repeat changed the topic")
	}
	w.refused(&CreateTopic{ID: uuid(2), Name: "lines", Ranges: places}, CodeTopicExists)
	w.refused(&CreateTopic{ID: uuid(1), Name: "other", Ranges: places}, CodeConflict)
	w.refused(&CreateTopic{ID: uuid(2), Name: "other", Ranges: [][]vtop.NodeName{{"n1"}, {"n9"}}}, CodeUnknownNode)
}

// A name that is used again begins above every epoch that clients may have seen under it.
func TestDeleteTopic_EpochsOfANewTopicBeginAbove(t *testing.T) {
	w := newWorld(t)
	for range 5 {
		w.lead("n1", 0)
	}
	high := w.rng(r0).LastEpoch
	w.ok(w.segmentOf(0, 10))
	w.ok(&DeleteTopic{ID: uuid(1), At: 3})
	w.ok(&DeleteTopic{ID: uuid(1)})
	if !w.s.Deleted(uuid(1)) || w.s.RangeCount() != 0 || w.s.SegmentCount() != 0 || w.s.Deleted(uuid(2)) {
		t.Errorf("state after deletion: %d ranges, %d segments", w.s.RangeCount(), w.s.SegmentCount())
	}
	w.refused(&DeleteTopic{ID: uuid(2)}, CodeUnknownRange)
	w.refused(&CreateTopic{ID: uuid(1), Name: "lines", Ranges: [][]vtop.NodeName{{"n1"}}}, CodeConflict) // an id lives once
	w.ok(&CreateTopic{ID: uuid(2), Name: "lines", Ranges: [][]vtop.NodeName{{"n1"}}})
	again := rangeID(2, 0)
	out := w.ok(&GrantLeases{Items: []Grant{{Range: again, Holder: "n1", Incarnation: 1, Expected: high}}})
	if got := out.Items[0].Epoch; got <= high {
		t.Errorf("first epoch of the new topic is %d, the old one had %d", got, high)
	}
	old := &MoveLogStart{Range: r0, Epoch: high, Start: 1}
	if out := w.refused(old, CodeUnknownRange); !errors.Is(out.Err(), vtop.ErrUnknownRange) {
		t.Errorf("error %v", out.Err())
	}
}

func TestDeleteTopic_TombstonesAreBounded(t *testing.T) {
	tx := begin(NewState())
	for i := range uint64(MaxTombstones + 3) {
		tx.bury(&Tombstone{Topic: uuid(i), Index: i + 1})
	}
	if tx.s.Deleted(uuid(2)) || !tx.s.Deleted(uuid(3)) || tx.s.tombstones.Len() != MaxTombstones {
		t.Errorf("%d tombstones; the oldest are to be forgotten", tx.s.tombstones.Len())
	}
}

func TestCreateRanges(t *testing.T) {
	w := newWorld(t)
	cmd := &CreateRanges{Topic: uuid(1), Expected: 2, Ranges: [][]vtop.NodeName{{"n4", "n5"}}}
	w.ok(cmd)
	if r := w.rng(rangeID(1, 2)); r.Preferred[0] != "n4" || len(r.Replicas) != 2 {
		t.Errorf("range %+v", r)
	}
	w.refused(cmd, CodeConflict)
	w.refused(&CreateRanges{Topic: uuid(9), Expected: 2, Ranges: cmd.Ranges}, CodeUnknownRange)
	w.refused(&CreateRanges{Topic: uuid(1), Expected: 3, Ranges: [][]vtop.NodeName{{"n9"}}}, CodeUnknownNode)
	many := make([][]vtop.NodeName, MaxRangesPerTopic)
	for i := range many {
		many[i] = []vtop.NodeName{"n1"}
	}
	w.refused(&CreateRanges{Topic: uuid(1), Expected: 3, Ranges: many}, CodeLimit)
}

func TestAlterTopicConfig(t *testing.T) {
	w := newWorld(t)
	config := func() map[string]string { topic, _ := w.s.Topic(uuid(1)); return topic.Config }
	out := w.ok(&AlterTopicConfig{Topic: uuid(1), Set: map[string]string{"a": "1", "b": "2"}})
	before := config()
	w.ok(&AlterTopicConfig{Topic: uuid(1), Expected: out.ConfigVersion, Set: map[string]string{"b": "3"}, Delete: []string{"a", "b"}})
	if !maps.Equal(config(), map[string]string{"b": "3"}) || !maps.Equal(before, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("configuration %v, before %v", config(), before)
	}
	w.refused(&AlterTopicConfig{Topic: uuid(1), Expected: out.ConfigVersion, Delete: []string{"b"}}, CodeStaleConfig)
	w.refused(&AlterTopicConfig{Topic: uuid(9), Delete: []string{"b"}}, CodeUnknownRange)
	version := w.ok(&AlterTopicConfig{Topic: uuid(1), Set: map[string]string{"b": "3"}}).ConfigVersion
	if topic, _ := w.s.Topic(uuid(1)); topic.ConfigVersion != version || version != 3 {
		t.Errorf("a repeat led to version %d", topic.ConfigVersion)
	}
}
