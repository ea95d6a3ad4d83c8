package fsm

import (
	"maps"
	"slices"

	"github.com/vtop-log/vtop"
)

// tx is a State being made from the one before it, by one command after another. What it notes about the changes
// spares the readers a comparison of whole states.
type tx struct {
	s     *State
	index uint64

	ranges  map[vtop.Range]struct{}
	topics  bool
	nodes   bool
	repairs bool
	// slots and groups are nil until one changes.
	slots  map[Slot]struct{}
	groups map[string]struct{}
}

func begin(s *State) *tx { return &tx{s: s.fork(), ranges: make(map[vtop.Range]struct{})} }

// run applies one command. It never fails: what it cannot do is a refusal.
func (t *tx) run(index uint64, cmd Command) Outcome {
	t.index, t.s.index = index, index
	if r := t.s.admits(cmd); r != nil {
		return Outcome{Index: index, Refusal: r}
	}
	out := cmd.apply(t)
	out.Index = index
	return out
}

// Apply returns the state after the commands, applied one by one from index on, and their outcomes. It is pure: s
// is as before. It panics with a *Fault if this build does not understand what the commands lead to.
func (s *State) Apply(index uint64, cmds ...Command) (*State, []Outcome) {
	t := begin(s)
	outs := make([]Outcome, len(cmds))
	for i, cmd := range cmds {
		outs[i] = t.run(index+uint64(i), cmd)
	}
	return t.s, outs
}

// change says what the transaction changed.
func (t *tx) change() Change {
	ranges := make([]vtop.Range, 0, len(t.ranges))
	for r := range t.ranges {
		ranges = append(ranges, r)
	}
	slices.SortFunc(ranges, vtop.Range.Compare)
	return Change{Index: t.s.index, Ranges: ranges, Topics: t.topics, Nodes: t.nodes, Repairs: t.repairs,
		Coordinators: slices.Sorted(maps.Keys(t.slots)), Groups: slices.Sorted(maps.Keys(t.groups))}
}

func (t *tx) putTopic(topic *Topic) {
	t.s.topics.Set(topic)
	t.topics = true
}

func (t *tx) putNode(n *Node) {
	t.s.nodes.Set(n)
	t.nodes = true
}

// putRange replaces a range. The index from nodes to ranges follows the replicas, and so do the repair jobs.
func (t *tx) putRange(r *Range) {
	old, had := t.s.ranges.Set(r)
	t.ranges[r.ID] = struct{}{}
	if had {
		if sameReplicas(old, r) {
			return
		}
		for _, rep := range old.Replicas {
			if _, still := r.Replica(rep.ID); !still {
				t.s.held.Delete(nodeReplica{rep.Node, r.ID, rep.ID})
			}
		}
	}
	for _, rep := range r.Replicas {
		t.s.held.Set(nodeReplica{rep.Node, r.ID, rep.ID})
	}
	if had {
		t.repairsFollow(r)
	}
}

// sameReplicas reports whether the list is the very same: whoever changes it replaces it.
func sameReplicas(a, b *Range) bool {
	return len(a.Replicas) == len(b.Replicas) && &a.Replicas[0] == &b.Replicas[0]
}

func (t *tx) deleteRange(r *Range) {
	t.s.ranges.Delete(r)
	t.ranges[r.ID] = struct{}{}
	for _, rep := range r.Replicas {
		t.s.held.Delete(nodeReplica{rep.Node, r.ID, rep.ID})
	}
	t.dropSegments(r.ID, vtop.Offset(1<<63-1))
	t.repairsOfDeleted(r.ID)
}

// dropSegments forgets the catalogue entries of a range that end at or below start.
func (t *tx) dropSegments(id vtop.Range, start vtop.Offset) {
	var gone []*Segment
	for seg := range t.s.Catalogue(id) {
		if seg.End > start {
			break
		}
		gone = append(gone, seg)
	}
	for _, seg := range gone {
		t.s.segments.Delete(seg)
	}
}
