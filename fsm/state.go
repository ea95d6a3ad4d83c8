package fsm

import (
	"cmp"
	"iter"
	"strconv"
	"sync"

	"github.com/tidwall/btree"

	"github.com/vtop-log/vtop"
)

// State is the whole replicated state after one entry of the log. A published State and everything reachable from it
// is never written again: any number of goroutines may read it, for as long as they like, without a lock. The
// next State shares all that did not change.
//
// It records what was committed, and nothing about this node: neither who is alive, nor what is on disk.
type State struct {
	index   uint64
	cluster Cluster

	lastBroker     vtop.BrokerID
	lastReplica    vtop.ReplicaID
	nextProducerID int64
	// firstEpoch is the number above which the epochs of new ranges begin.
	firstEpoch vtop.Epoch

	nodes      *btree.BTreeG[*Node]
	topics     *btree.BTreeG[*Topic]
	names      *btree.Map[string, vtop.TopicID]
	ranges     *btree.BTreeG[*Range]
	held       *btree.BTreeG[nodeReplica]
	segments   *btree.BTreeG[*Segment]
	tombstones *btree.BTreeG[*Tombstone]
	// burials orders the tombstones by index, so that the oldest can be forgotten.
	burials *btree.Map[uint64, vtop.TopicID]

	lastRepair RepairID
	repairs    *btree.BTreeG[*RepairJob]
	// repairing and repairsTo index the active jobs, ended orders the others, so that the oldest can be forgotten.
	repairing *btree.BTreeG[rangeRepair]
	repairsTo *btree.BTreeG[nodeRepair]
	ended     *btree.BTreeG[endedRepair]

	groups groupTables
	quotas *btree.BTreeG[*ClientQuota]

	// forkMu guards fork alone: copying a tree writes a mark into it that readers never look at.
	forkMu sync.Mutex
}

// nodeReplica is one entry of the index from nodes to their replicas.
type nodeReplica struct {
	node vtop.NodeName
	r    vtop.Range
	id   vtop.ReplicaID
}

func (a nodeReplica) compare(b nodeReplica) int {
	return cmp.Or(cmp.Compare(a.node, b.node), a.r.Compare(b.r), cmp.Compare(a.id, b.id))
}

// rangeRepair, nodeRepair and endedRepair are entries of the indexes of repair jobs.
type rangeRepair struct {
	r    vtop.Range
	node vtop.NodeName
	id   RepairID
}

type nodeRepair struct {
	node vtop.NodeName
	id   RepairID
}

type endedRepair struct {
	index uint64
	id    RepairID
}

func (a rangeRepair) compare(b rangeRepair) int {
	return cmp.Or(a.r.Compare(b.r), cmp.Compare(a.node, b.node), cmp.Compare(a.id, b.id))
}

func (a nodeRepair) compare(b nodeRepair) int {
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.id, b.id))
}

func (a endedRepair) compare(b endedRepair) int {
	return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.id, b.id))
}

// NewState returns the state before the first entry.
func NewState() *State {
	return &State{
		nodes:          newTree(func(a, b *Node) bool { return a.Name < b.Name }),
		topics:         newTree(func(a, b *Topic) bool { return compareUUID(a.ID, b.ID) < 0 }),
		nextProducerID: 1,
		names:          new(btree.Map[string, vtop.TopicID]),
		ranges:         newTree(func(a, b *Range) bool { return a.ID.Compare(b.ID) < 0 }),
		held:           newTree(func(a, b nodeReplica) bool { return a.compare(b) < 0 }),
		segments:       newTree(segmentLess),
		tombstones:     newTree(func(a, b *Tombstone) bool { return compareUUID(a.Topic, b.Topic) < 0 }),
		burials:        new(btree.Map[uint64, vtop.TopicID]),
		repairs:        newTree(func(a, b *RepairJob) bool { return a.ID < b.ID }),
		repairing:      newTree(func(a, b rangeRepair) bool { return a.compare(b) < 0 }),
		repairsTo:      newTree(func(a, b nodeRepair) bool { return a.compare(b) < 0 }),
		ended:          newTree(func(a, b endedRepair) bool { return a.compare(b) < 0 }),
		groups:         newGroupTables(),
		quotas:         newTree(quotaLess),
	}
}

func newTree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

func segmentLess(a, b *Segment) bool {
	if c := a.Range.Compare(b.Range); c != 0 {
		return c < 0
	}
	return a.Base < b.Base
}

func compareUUID(a, b vtop.UUID) int { return vtop.Range{Topic: a}.Compare(vtop.Range{Topic: b}) }

// fork returns a State that may be written until it is published. It costs a few words, whatever the size.
func (s *State) fork() *State {
	s.forkMu.Lock()
	defer s.forkMu.Unlock()
	return &State{
		index: s.index, cluster: s.cluster,
		lastBroker: s.lastBroker, lastReplica: s.lastReplica, nextProducerID: s.nextProducerID, firstEpoch: s.firstEpoch,
		nodes: s.nodes.Copy(), topics: s.topics.Copy(), names: s.names.Copy(), ranges: s.ranges.Copy(), held: s.held.Copy(),
		segments: s.segments.Copy(), tombstones: s.tombstones.Copy(), burials: s.burials.Copy(),
		lastRepair: s.lastRepair, repairs: s.repairs.Copy(), repairing: s.repairing.Copy(), repairsTo: s.repairsTo.Copy(), ended: s.ended.Copy(),
		groups: s.groups.fork(), quotas: s.quotas.Copy(),
	}
}

// Index is the Raft index of the last command applied; 0 before the first. Entries of Raft itself (barriers,
// no-ops, configurations) do not count: compare it only with the Index of another State or Outcome.
func (s *State) Index() uint64 { return s.index }

// Cluster returns what the cluster knows of itself; its ID is zero before the cluster is born.
func (s *State) Cluster() Cluster { return s.cluster }

// Node finds a node by its name, gone ones included.
func (s *State) Node(name vtop.NodeName) (*Node, bool) { return s.nodes.Get(&Node{Name: name}) }

// NodeByBroker finds a node by its broker id. It walks the nodes.
func (s *State) NodeByBroker(id vtop.BrokerID) (*Node, bool) {
	return s.findNode(func(n *Node) bool { return n.Broker == id })
}

// NodeByStorage finds the node whose registered data directory is id. It walks the nodes.
func (s *State) NodeByStorage(id vtop.StorageID) (*Node, bool) {
	return s.findNode(func(n *Node) bool { return n.Storage == id })
}

func (s *State) findNode(match func(*Node) bool) (found *Node, ok bool) {
	for n := range s.Nodes() {
		if match(n) {
			return n, true
		}
	}
	return nil, false
}

// Nodes walks the nodes by name, gone ones included.
func (s *State) Nodes() iter.Seq[*Node] { return all(s.nodes) }

// NodeCount is the number of nodes ever registered, gone ones included.
func (s *State) NodeCount() int { return s.nodes.Len() }

// Topic finds a topic by its id.
func (s *State) Topic(id vtop.TopicID) (*Topic, bool) { return s.topics.Get(&Topic{ID: id}) }

// TopicByName finds the present life of a topic name.
func (s *State) TopicByName(name string) (*Topic, bool) {
	id, ok := s.names.Get(name)
	if !ok {
		return nil, false
	}
	return s.Topic(id)
}

// Topics walks the topics by name.
func (s *State) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		s.names.Scan(func(_ string, id vtop.TopicID) bool {
			t, ok := s.Topic(id)
			return !ok || yield(t)
		})
	}
}

// TopicCount is the number of topics.
func (s *State) TopicCount() int { return s.topics.Len() }

// Deleted reports whether a topic id was deleted: the only licence to delete its directories. A topic that is neither
// here nor deleted is unknown, and what belongs to it is set aside.
func (s *State) Deleted(id vtop.TopicID) bool {
	_, ok := s.tombstones.Get(&Tombstone{Topic: id})
	return ok
}

// Tombstones walks the deleted topics by id.
func (s *State) Tombstones() iter.Seq[*Tombstone] { return all(s.tombstones) }

// Range finds a range.
func (s *State) Range(id vtop.Range) (*Range, bool) { return s.ranges.Get(&Range{ID: id}) }

// Ranges walks all ranges by topic id and index.
func (s *State) Ranges() iter.Seq[*Range] { return all(s.ranges) }

// RangeCount is the number of ranges of all topics.
func (s *State) RangeCount() int { return s.ranges.Len() }

// RangesOfTopic walks the ranges of a topic by index.
func (s *State) RangesOfTopic(id vtop.TopicID) iter.Seq[*Range] {
	return func(yield func(*Range) bool) {
		s.ranges.Ascend(&Range{ID: vtop.Range{Topic: id}}, func(r *Range) bool { return r.ID.Topic == id && yield(r) })
	}
}

// RangesOf walks the ranges of which the node has a replica, lost ones included, by topic id and index, each once.
// It costs what it yields, whatever the size of the state.
func (s *State) RangesOf(node vtop.NodeName) iter.Seq[*Range] {
	return func(yield func(*Range) bool) {
		var last *Range
		s.held.Ascend(nodeReplica{node: node}, func(h nodeReplica) bool {
			if h.node != node {
				return false
			}
			if last != nil && last.ID == h.r {
				return true // a lost replica and the learner that replaces it
			}
			r, ok := s.Range(h.r)
			if !ok {
				return true
			}
			last = r
			return yield(r)
		})
	}
}

// LeasesOf walks the ranges whose lease the node holds, in whatever incarnation.
func (s *State) LeasesOf(node vtop.NodeName) iter.Seq[*Range] {
	return func(yield func(*Range) bool) {
		for r := range s.RangesOf(node) {
			if r.Lease.Holder == node && !yield(r) {
				return
			}
		}
	}
}

// RangeName is what people are shown: topic name and index, or the id of a topic that is not known.
func (s *State) RangeName(id vtop.Range) string {
	if t, ok := s.Topic(id.Topic); ok {
		return t.Name + "/" + strconv.Itoa(int(id.Index))
	}
	return id.String()
}

// Catalogue walks the sealed segments of a range by base, from the oldest that the log start has left.
func (s *State) Catalogue(id vtop.Range) iter.Seq[*Segment] { return s.CatalogueFrom(id, 0) }

// CatalogueFrom walks the sealed segments of a range whose base is at or above base.
func (s *State) CatalogueFrom(id vtop.Range, base vtop.Offset) iter.Seq[*Segment] {
	return func(yield func(*Segment) bool) {
		s.segments.Ascend(&Segment{Range: id, Base: base}, func(seg *Segment) bool { return seg.Range == id && yield(seg) })
	}
}

// Segment finds the catalogue entry of a range that begins at base.
func (s *State) Segment(id vtop.Range, base vtop.Offset) (*Segment, bool) {
	return s.segments.Get(&Segment{Range: id, Base: base})
}

// LastSegment finds the newest catalogue entry of a range.
func (s *State) LastSegment(id vtop.Range) (last *Segment, ok bool) {
	s.segments.Descend(&Segment{Range: id, Base: 1<<63 - 1}, func(seg *Segment) bool {
		if seg.Range == id {
			last, ok = seg, true
		}
		return false
	})
	return last, ok
}

// SegmentCount is the number of catalogue entries of all ranges.
func (s *State) SegmentCount() int { return s.segments.Len() }

func all[T any](tree *btree.BTreeG[T]) iter.Seq[T] {
	return func(yield func(T) bool) { tree.Scan(yield) }
}
