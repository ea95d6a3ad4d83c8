package liveness

import (
	"fmt"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
)

// Health is what a node says of itself in a beat.
type Health struct {
	// Storage is the data directory that the incarnation counts the starts of.
	Storage     vtop.StorageID
	Incarnation vtop.Incarnation
	// DiskStalled is how long the write in flight has waited beyond the usual; 0 when the disk answers.
	DiskStalled time.Duration
	// DiskFailing: the last probe of the disk came back with an error.
	DiskFailing bool
	// NoSpace: the data disk is under its reserve; the node can hold no lease that takes writes.
	NoSpace bool
	// FreeBytes is shown only.
	FreeBytes uint64
	// Applied is the index of the metadata that it had applied.
	Applied uint64
	// Leaving: the node is being stopped in an orderly way and wants its leases elsewhere.
	Leaving bool
}

// Limits are the times after which silence and a stalled disk count as evidence.
type Limits struct {
	// Silence is how long a node may say nothing before it is taken for dead, while this process runs: if a Tracker is not used
	// for half of that, this process itself was not running, and every node has the whole limit again.
	Silence time.Duration
	// DiskStall is how long a write may be in flight before the node is taken for unfit to lead.
	DiskStall time.Duration
	// Behind is for how long a node may lack metadata that this one has before it is taken for unfit to lead: what took its lease away may be in there, and it
	// is not to be told that all is well (I7). 0: it is not judged by that.
	Behind time.Duration
}

// Verdict is what the tracker believes of one node now.
type Verdict struct {
	// Alive: it may hold leases.
	Alive bool
	// HasRoom: it is alive and its disk takes writes.
	HasRoom bool
	// Reason says, for people, why it is not alive, or has no room; empty when all is well.
	Reason string
	// Incarnation is the life last heard of; 0 if none was.
	Incarnation vtop.Incarnation
	// Health is what the node last said of itself.
	Health Health
	// SilentFor is the time since the last beat, or since the tracker first looked for one.
	SilentFor time.Duration
}

type record struct {
	health  Health
	seq     uint64
	last    time.Duration // of the last beat, or of the first question
	refused bool          // nobody listens at its port: the process is gone
	due     uint64        // the metadata that it should have applied by its last beat; 0 if it had
}

// mark is what this node had applied at one time.
type mark struct {
	at    time.Duration
	index uint64
}

// Tracker holds the last beats of all nodes. It is safe for concurrent use and never blocks. It must be used many times
// within the silence limit: see Limits.
type Tracker struct {
	limits Limits
	awake  awake

	mu    sync.Mutex
	nodes map[vtop.NodeName]*record
	// slept is what of this process's pauses the records know of.
	slept time.Duration
	marks []mark // the newest one from Limits.Behind ago or before, and those since; their indexes rise
}

// NewTracker makes a tracker; clock is monotonic, and goes on while the machine sleeps.
func NewTracker(limits Limits, clock func() time.Duration) *Tracker {
	return &Tracker{limits: limits, awake: awake{clock: clock, most: limits.Silence / 2}, nodes: map[vtop.NodeName]*record{}}
}

// Now is the time by which others are judged: it stands still while this process does not run, so that nobody is found late
// for a time in which this node could have heard nothing of him. Slept is the sum of those pauses.
func (t *Tracker) Now() (now, slept time.Duration) { return t.awake.now() }

// nowLocked gives every node the whole silence limit again after a pause, and asks of nobody what it should have applied: others have
// gone on meanwhile, or not. What was seen with own eyes stays.
func (t *Tracker) nowLocked() time.Duration {
	now, slept := t.awake.now()
	if slept != t.slept {
		t.slept, t.marks = slept, nil
		for _, r := range t.nodes {
			r.last, r.due = now, 0
		}
	}
	return now
}

// Beat takes a beat. One of an older incarnation than the last is ignored (a delayed word of a dead process),
// and false is returned. Another data directory that took the name over counts its starts anew; only one that is
// registered gets as far as sending beats.
func (t *Tracker) Beat(node vtop.NodeName, seq uint64, h Health) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.recordLocked(node)
	if h.Storage == r.health.Storage && h.Incarnation < r.health.Incarnation {
		return false
	}
	*r = record{health: h, seq: seq, last: t.nowLocked()}
	if due := t.dueLocked(); h.Applied < due {
		r.due = due
	}
	return true
}

// Applied notes what this node has applied of the metadata, which others are measured by.
func (t *Tracker) Applied(index uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	if n := len(t.marks); t.limits.Behind > 0 && (n == 0 || t.marks[n-1].index < index) {
		t.marks = append(t.marks, mark{now, index})
	}
	t.dueLocked()
}

// dueLocked is the index that every node should have applied by now; 0 if nothing has been known for long enough.
func (t *Tracker) dueLocked() uint64 {
	old := t.nowLocked() - t.limits.Behind
	for len(t.marks) > 1 && t.marks[1].at <= old {
		t.marks = t.marks[1:]
	}
	if len(t.marks) == 0 || t.marks[0].at > old {
		return 0
	}
	return t.marks[0].index
}

// Lost notes that the beat connection of a life of node broke; refused, that dialling it was refused: no
// process listens there. Evidence against an older life than the last heard of is ignored. It returns whether the
// verdict has changed.
func (t *Tracker) Lost(node vtop.NodeName, life vtop.Incarnation, refused bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.recordLocked(node)
	if life < r.health.Incarnation || r.refused {
		return false
	}
	r.refused = refused
	return refused
}

// Seq returns the number of the last beat of node, to be acknowledged once leadership was verified after it.
func (t *Tracker) Seq(node vtop.NodeName) (seq uint64, life vtop.Incarnation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.recordLocked(node)
	return r.seq, r.health.Incarnation
}

// Verdict judges node. A node never heard of is given the whole silence limit from the first question, so that
// a voter that has just started condemns nobody.
func (t *Tracker) Verdict(node vtop.NodeName) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.recordLocked(node)
	silent := t.nowLocked() - r.last
	v := Verdict{Alive: true, HasRoom: !r.health.NoSpace, Incarnation: r.health.Incarnation, Health: r.health, SilentFor: silent}
	switch {
	case r.refused:
		v.Reason = "connection lost and refused: the process is gone"
	case silent > t.limits.Silence:
		v.Reason = fmt.Sprintf("silent for %s", silent.Round(time.Millisecond))
	case r.health.DiskStalled > t.limits.DiskStall:
		v.Reason = fmt.Sprintf("storage stalled for %s", r.health.DiskStalled.Round(time.Millisecond))
	case r.health.DiskFailing:
		v.Reason = "storage failing"
	case r.due > 0:
		v.Reason = fmt.Sprintf("does not take up the metadata: has applied %d, and %d was known %s before", r.health.Applied, r.due, t.limits.Behind)
		if r.health.NoSpace {
			v.Reason = "no space on the data disk; " + v.Reason
		}
	case r.health.Leaving:
		v.Reason = "being stopped"
	case r.health.NoSpace:
		v.Reason = "no space on the data disk"
		return v
	default:
		return v
	}
	v.Alive, v.HasRoom = false, false
	return v
}

func (t *Tracker) recordLocked(node vtop.NodeName) *record {
	r := t.nodes[node]
	if r == nil {
		r = &record{last: t.nowLocked()}
		t.nodes[node] = r
	}
	return r
}
