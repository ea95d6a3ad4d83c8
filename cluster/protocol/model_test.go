package protocol

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vtop-log/vtop"
)

// The explorer's model: one range, a metadata log that every node follows with its own lag, replicas with a durable
// and an unsynced part, and a net that may delay, drop, repeat and reorder. All decisions are made by the functions
// of this package; the model adds only what they decide about. Slices in a world are replaced, never edited, so
// that a copy of the struct is a copy of the world.

const maxNodes = 5

var nodeNames = [maxNodes]vtop.NodeName{"n0", "n1", "n2", "n3", "n4"}

// rules are the switches: each turns off one load-bearing rule. All false is the protocol.
type rules struct {
	volatilePromise   bool // I6: the promise is forgotten at a restart
	staleRestart      bool // §barrier: a restarted node acts on an old snapshot of the metadata
	leaseOutlives     bool // I5: a restarted node goes on in its epoch
	nextStartDecides  bool // I8: a span ends at the next entry's start, not at the lowest later one
	oneSetInFlight    bool // the leader counts the present set only while a change is in flight
	settleByHigh      bool // the high watermark settles a change, which never goes back
	reuseOffset       bool // after a failed write the leader goes on in its epoch
	eagerDuplicate    bool // a recognised duplicate is acknowledged at once
	ackUnreconciled   bool // a follower accepts and acknowledges without comparing its log with the started epoch
	compareOnce       bool // the comparison made for the fence counts for following too
	countNodes        bool // I10: a wiped node goes on under its old replica id
	ackByOffset       bool // a waiting request succeeds when the node's high watermark passes its offset, whoever leads
	showEarly         bool // I7: a new leader shows its high watermark before it has reached the epoch's start
	floorGuard        bool // a cut below the committed floor is refused, whoever wrote the records
	leaseQuarantine   bool // records above the *lease's* epoch are quarantined, not those above the last started
	marksSurviveEpoch bool // acknowledgements of an earlier epoch count in a later one
	leadBelowPromise  bool // I6: a holder leads although it promised a higher epoch
	refusedEarly      bool // a refusal closes a change before the leader has applied up to it
	proposeUnsettled  bool // a change is proposed unsettled, and one refusal is taken for the end of all its copies
}

// limits bound a run.
type limits struct {
	nodes, voters          int
	epochs                 vtop.Epoch
	values                 uint8 // distinct records that producers try to write
	retries                int   // produce requests in all
	bounces, wipes, fails  int   // faults in all
	changes, spares        int   // voter changes, learner creations
	rewinds                int   // recoveries of lost metadata
	jumps, floors, partial bool  // snapshot jumps; floor reports; syncs and losses of a part
	firstHolder            bool  // the first grant goes to n0: all nodes are alike then
	quiet                  bool  // followers are not told high watermarks
	maxNet                 int   // messages in flight, after which the oldest is dropped; 0 for no bound
}

type rec struct {
	epoch vtop.Epoch
	val   uint8
}

// meta is one state of the metadata log: never edited after it is published.
type meta struct {
	gen  uint8
	view View
	conf Members
	set  Settlement
	reps [maxNodes]vtop.ReplicaID // the replica that a node is to hold; 0 none
	next vtop.ReplicaID
}

type waiting struct {
	Pending
	off vtop.Offset
	val uint8
}

type node struct {
	inc  vtop.Incarnation
	view *meta
	// On disk.
	log     []rec
	durable int
	rep     vtop.ReplicaID
	promise Promise // only the epoch is on disk
	bad     bool    // quarantined
	// In memory.
	reconciled Compared
	high       vtop.Offset // high watermark as earlier leaders told it
	known      vtop.Offset // below it the own records are committed
	asked      vtop.Epoch  // promoting
	answers    []Answer
	ended      vtop.Epoch // resigned: never leads this epoch again
	lead       *Leading
	waits      []waiting
	oldMarks   Marks  // only for marksSurviveEpoch
	flight     uint64 // only for oneSetInFlight: the version that a change in flight expects
}

type msgKind uint8

const (
	msgAsk msgKind = iota + 1
	msgAnswer
	msgStart // proposal
	msgAppend
	msgHigh
	msgAck
	msgReport // proposal
	msgChange // proposal
	msgRefused
)

// msg is one message or proposal in flight. It stays in flight after delivery: it may come again.
type msg struct {
	kind    msgKind
	gen     uint8
	from    int8
	rep     vtop.ReplicaID // addressed or answering
	epoch   vtop.Epoch
	off     vtop.Offset // end, base or mark
	off2    vtop.Offset // quorum position
	rec     rec         // appended record; for answers the last epoch
	version uint64
	grant   uint64
	refusal Refusal
	change  Change
}

// world is the whole of it: the metadata log, the nodes, the net, and the ghosts that remember what was true.
type world struct {
	rules *rules
	lim   *limits
	hist  []*meta
	nodes [maxNodes]node
	net   []*letter
	post  *post
	gen   uint8
	min   vtop.Epoch // minimum named by refused fences
	// Ghosts: what was true, for the invariants.
	committed []rec        // below somebody's high watermark, or acknowledged
	written   []writtenRec // by leaders
	shown     [16]vtop.Offset
	done      uint16 // values acknowledged to their producers
	// Budgets used.
	produced, bounces, wipes, fails, changes, spares, rewinds int
}

type writtenRec struct {
	epoch vtop.Epoch
	off   vtop.Offset
	val   uint8
}

func newWorld(r *rules, lim *limits) *world {
	w := &world{rules: r, lim: lim, post: &post{letters: map[msg]*letter{}}}
	m := &meta{next: 1, set: Settlement{Quorum: NoOffset}}
	m.conf.Version = 1
	for i := range lim.voters {
		m.reps[i] = m.next
		m.conf.Voters = m.conf.Voters.With(m.next)
		m.next++
	}
	m.view = View{CaughtUp: true, Index: 1}
	for i := range lim.nodes {
		w.nodes[i] = node{inc: 1, view: m, rep: m.reps[i]}
	}
	for i := range w.shown {
		w.shown[i] = NoOffset
	}
	w.hist = []*meta{m}
	return w
}

func (w *world) clone() *world {
	c := *w
	return &c
}

func (w *world) last() *meta { return w.hist[len(w.hist)-1] }

// publish appends a changed copy of the last state to the metadata log.
func (w *world) publish(edit func(*meta)) *meta {
	m := *w.last()
	m.view.Index++
	m.gen = w.gen
	edit(&m)
	w.hist = append(slices.Clip(w.hist), &m)
	return &m
}

// letter is a message that was sent at least once in the search; worlds share letters and hold only pointers.
type letter struct {
	msg
	hash fingerprint
}

// post keeps the letters of one search. One goroutine uses it.
type post struct {
	letters map[msg]*letter
	enc     encoder
}

func (p *post) letter(m msg) *letter {
	l, ok := p.letters[m]
	if !ok {
		p.enc.buf = p.enc.buf[:0]
		p.enc.msg(&m)
		l = &letter{msg: m}
		l.hash.add(p.enc.buf)
		p.letters[m] = l
	}
	return l
}

// send puts messages into the net; one that is there already stays once.
func (w *world) send(ms ...msg) {
	for _, m := range ms {
		m.gen = w.nodes[m.from].view.gen
		l := w.post.letter(m)
		if slices.Contains(w.net, l) {
			continue
		}
		if w.lim.maxNet > 0 && len(w.net) >= w.lim.maxNet {
			w.net = slices.Clone(w.net[1:])
		}
		net := make([]*letter, len(w.net)+1)
		copy(net, w.net)
		net[len(w.net)] = l
		w.net = net
	}
}

func runsOf(log []rec) []vtop.EpochRun {
	var runs []vtop.EpochRun
	for i, r := range log {
		if i == 0 || log[i-1].epoch != r.epoch {
			runs = append(runs, vtop.EpochRun{Epoch: r.epoch, Start: vtop.Offset(i)})
		}
	}
	return runs
}

func (w *world) held(i int, lease vtop.Lease) bool {
	if w.rules.leaseOutlives {
		return lease.Epoch > 0 && lease.Holder == nodeNames[i]
	}
	return lease.HeldBy(nodeNames[i], w.nodes[i].inc)
}

func (w *world) local(i int) Local {
	n := &w.nodes[i]
	l := Local{Replica: n.rep, Promise: n.promise, Reconciled: n.reconciled}
	switch {
	case n.bad:
		l.Lost = "quarantined"
	case n.rep != 0 && n.view.conf.Lost.Has(n.rep):
		l.Lost = "wiped"
	}
	if w.rules.ackUnreconciled || w.rules.compareOnce {
		if l.Reconciled.Epoch == n.view.view.Lease.Epoch || w.rules.ackUnreconciled {
			l.Reconciled = n.view.view.Compared()
		}
	}
	return l
}

func (n *node) end() vtop.Offset { return vtop.Offset(len(n.log)) }

func (n *node) lastEpoch() vtop.Epoch {
	if len(n.log) == 0 {
		return vtop.NoEpoch
	}
	return n.log[len(n.log)-1].epoch
}

// String draws a world in a few lines for counter-examples.
func (w *world) String() string {
	var b strings.Builder
	m := w.last()
	fmt.Fprintf(&b, "  metadata %d: lease %s/%d epoch %d started %t table %v floor %d voters %v learners %v lost %v version %d settle %v\n",
		m.view.Index, m.view.Lease.Holder, m.view.Lease.Incarnation, m.view.Lease.Epoch, m.view.Started, m.view.Table,
		m.view.Floor, m.conf.Voters, m.conf.Learners, m.conf.Lost, m.conf.Version, m.set)
	for i := range w.lim.nodes {
		n := &w.nodes[i]
		fmt.Fprintf(&b, "  n%d/%d replica %d view %d log %v durable %d promise %d", i, n.inc, n.rep, n.view.view.Index, n.log, n.durable, n.promise.Epoch)
		if n.lead != nil {
			fmt.Fprintf(&b, " leads %d high %d marks %v", n.lead.Epoch(), n.lead.HighWatermark(), n.lead.marks)
		}
		if n.bad {
			b.WriteString(" quarantined")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "  committed %v", w.committed)
	return b.String()
}
