package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/peerpb"
)

const (
	// promoteChunk is how many ranges one Fence call asks for at most.
	promoteChunk = 512
	// promoteParallel is how many chunks are on their way at once: one that waits for a peer does not hold up the others.
	promoteParallel = 4
	// fetchParallel is how many ranges fetch the missing part of their log at once.
	fetchParallel = 4
	// fetchTime bounds the fetch of one range's missing part; what was fetched stays for the next attempt.
	fetchTime = 30 * time.Second
)

// promotionState is the list of steps from a lease to its start.
type promotionState uint8

const (
	promoteAsk   promotionState = iota // the voters are to be asked, or asked again
	promoteFetch                       // a majority has promised; the longest log is another's
	promoteStart                       // StartEpoch is to be proposed
	promoteDone                        // proposed and taken; the applied state begins the leadership
	promoteOver                        // the lease moved, or was given up
)

func (s promotionState) String() string {
	return [...]string{"asking the voters", "fetching the longest log", "starting the epoch", "started", "over"}[s]
}

// promotion is one lease of this process on its way to serve. One chunk at a time works on it.
type promotion struct {
	slot   *slot
	r      vtop.Range
	lease  vtop.Lease
	grant  uint64
	self   vtop.ReplicaID
	nodes  map[vtop.ReplicaID]vtop.NodeName // voters that can vote, this one too
	rule   protocol.Promotion
	ctx    context.Context // dies with the lease
	cancel context.CancelCauseFunc

	// Guarded by promoter.mu.
	state   promotionState
	busy    bool
	due     time.Time
	tries   int
	answers []protocol.Answer
	choice  protocol.Choice
	why     string
}

// promoter brings granted leases to their start: it gathers, and asks each peer once for all ranges of a chunk.
type promoter struct {
	engine *Engine
	wake   chan struct{}
	room   chan struct{} // one entry per chunk on its way
	fetch  chan struct{}

	mu      sync.Mutex
	pending map[vtop.Range]*promotion
}

func newPromoter(e *Engine) *promoter {
	return &promoter{engine: e, wake: make(chan struct{}, 1), room: make(chan struct{}, promoteParallel),
		fetch: make(chan struct{}, fetchParallel), pending: make(map[vtop.Range]*promotion)}
}

// add notes a lease of this process that is not started. The same lease again changes nothing. kick begins the work.
func (p *promoter) add(s *slot, rg *fsm.Range, mine fsm.Replica) {
	s.mu.Lock()
	dropped := s.dropped
	s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.pending[rg.ID]
	if dropped == rg.Lease.Epoch || old != nil && old.lease == rg.Lease && old.state != promoteOver {
		return
	}
	if old != nil {
		old.cancel(&vtop.FencedError{Range: rg.ID, Claimed: old.lease.Epoch, Applied: rg.Lease, Reason: "lease moved"})
	}
	pr := &promotion{slot: s, r: rg.ID, lease: rg.Lease, grant: rg.GrantIndex, self: mine.ID, nodes: make(map[vtop.ReplicaID]vtop.NodeName)}
	pr.ctx, pr.cancel = context.WithCancelCause(p.engine.ctx)
	var voters []vtop.ReplicaID
	for _, rep := range rg.Replicas {
		if rep.Role == fsm.Voter {
			voters = append(voters, rep.ID)
		}
		if rep.CanVote() {
			pr.nodes[rep.ID] = rep.Node
		}
	}
	pr.rule = protocol.Promotion{Epoch: rg.Lease.Epoch, Self: mine.ID, Voters: protocol.NewSet(voters...),
		Floor: s.knownHighWatermark(rg.Floor), LogStart: rg.LogStart, Table: rg.Epochs}
	p.pending[rg.ID] = pr
	s.mu.Lock()
	s.promotion = pr
	s.becomeLocked(RolePromoting, "")
	s.mu.Unlock()
}

func (p *promoter) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run hands out chunks of promotions that are due.
func (p *promoter) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		chunk, next := p.due(time.Now())
		if len(chunk) > 0 {
			select {
			case p.room <- struct{}{}:
			case <-p.engine.ctx.Done():
				return
			}
			if !p.engine.goroutine(func() { p.chunk(chunk); <-p.room; p.kick() }) {
				return
			}
			continue
		}
		timer.Reset(next)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-p.engine.ctx.Done():
			return
		}
	}
}

// due takes out the promotions whose time has come, at most a chunk, and otherwise says when the next one's comes.
// What the applied state has overtaken is dropped here.
func (p *promoter) due(now time.Time) (chunk []*promotion, next time.Duration) {
	st := p.engine.machine.State()
	next = time.Hour
	p.mu.Lock()
	defer p.mu.Unlock()
	for r, pr := range p.pending {
		rg, ok := st.Range(r)
		if !ok || rg.Lease != pr.lease || rg.Started || pr.state == promoteOver {
			pr.cancel(&vtop.FencedError{Range: r, Claimed: pr.lease.Epoch, Reason: "lease moved, or started"})
			if !pr.busy {
				delete(p.pending, r)
			}
			continue
		}
		if pr.busy {
			continue
		}
		if wait := pr.due.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		if len(chunk) < promoteChunk {
			pr.busy = true
			chunk = append(chunk, pr)
		}
	}
	return chunk, next
}

// fenced is one peer's answer to one Fence call.
type fenced struct {
	asked   []*promotion
	answers []protocol.Answer // one for each of asked, for the replica on that peer
	told    []vtop.Offset
	err     error
	node    vtop.NodeName
}

// chunk asks all voters of all its promotions, goes on with each range as soon as a majority of *its* voters has
// promised, and sets the time of the next attempt for those that came no further.
func (p *promoter) chunk(chunk []*promotion) {
	ctx, cancel := context.WithTimeout(p.engine.ctx, p.engine.cfg.FenceTimeout)
	defer cancel()
	results, n := p.ask(ctx, chunk)
	var later sync.WaitGroup
	for range n {
		p.advance(p.take(<-results), &later)
	}
	later.Wait()
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pr := range chunk {
		pr.busy = false
		switch pr.state {
		case promoteOver:
			continue
		case promoteDone: // the applied state takes it out of here; should it not, it is asked again
			pr.state, pr.due = promoteAsk, now.Add(longestPause)
			continue
		}
		pr.state, pr.due = promoteAsk, now.Add(pauseAfter(pr.tries))
		pr.tries++
		p.explainLocked(pr)
	}
}

// ask sends one Fence to each node that has a voter of the chunk's ranges, the local one by a plain call.
func (p *promoter) ask(ctx context.Context, chunk []*promotion) (<-chan fenced, int) {
	byNode := make(map[vtop.NodeName][]*promotion)
	for _, pr := range chunk {
		for _, node := range pr.nodes {
			byNode[node] = append(byNode[node], pr)
		}
	}
	results := make(chan fenced, len(byNode)) // room for all: nobody waits who is not listened to
	for node, asked := range byNode {
		go func() {
			if node == p.engine.self {
				results <- p.askSelf(ctx, asked)
			} else {
				results <- p.askPeer(ctx, node, asked)
			}
		}()
	}
	return results, len(byNode)
}

func (p *promoter) askSelf(ctx context.Context, asked []*promotion) fenced {
	out := fenced{asked: asked, node: p.engine.self}
	asks := make([]protocol.Ask, len(asked))
	var grant uint64
	for i, pr := range asked {
		asks[i] = protocol.Ask{Lease: pr.lease, Grant: pr.grant, Replica: pr.self}
		grant = max(grant, pr.grant)
	}
	promises, err := p.engine.promise(ctx, grant, asks)
	out.err = err
	for i, a := range promises {
		out.answers = append(out.answers, answerOf(asked[i].self, asked[i].lease.Epoch, a))
		out.told = append(out.told, a.told)
	}
	return out
}

func (p *promoter) askPeer(ctx context.Context, node vtop.NodeName, asked []*promotion) fenced {
	out := fenced{asked: asked, node: node}
	req := &peerpb.FenceRequest{}
	ids := make([]vtop.ReplicaID, len(asked))
	for i, pr := range asked {
		ids[i] = pr.voterOn(node)
		req.GrantIndex = max(req.GrantIndex, pr.grant)
		req.Items = append(req.Items, &peerpb.FenceItem{Range: rangeTo(pr.r), ReplicaId: uint64(ids[i]), Epoch: int32(pr.lease.Epoch)})
	}
	resp, err := p.engine.cfg.Network.Peer(node).Fence(ctx, req)
	if err == nil && len(resp.Results) != len(asked) {
		err = fmt.Errorf("node %q answered %d of %d ranges", node, len(resp.Results), len(asked))
	}
	if err != nil {
		out.err = err
		return out
	}
	for i, m := range resp.Results {
		a, err := promisedFrom(m)
		if err != nil {
			a = promised{err: err, told: protocol.NoOffset}
		}
		out.answers = append(out.answers, answerOf(ids[i], asked[i].lease.Epoch, a))
		out.told = append(out.told, a.told)
	}
	return out
}

func (pr *promotion) voterOn(node vtop.NodeName) vtop.ReplicaID {
	for id, n := range pr.nodes {
		if n == node {
			return id
		}
	}
	return 0
}

// take adds one peer's answers and chooses for each range what comes next. It returns those that go on.
func (p *promoter) take(f fenced) (next []*promotion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, pr := range f.asked {
		if f.err != nil {
			pr.why = fmt.Sprintf("node %q: %v", f.node, f.err)
			continue
		}
		if pr.state != promoteAsk {
			continue // decided without this voter
		}
		pr.answers = append(dropAnswer(pr.answers, f.answers[i].Replica), f.answers[i])
		pr.rule.Floor = max(pr.rule.Floor, f.told[i])
		pr.choice = pr.rule.Choose(pr.answers)
		switch pr.choice.Step {
		case protocol.StepStart:
			pr.state = promoteStart
			next = append(next, pr)
		case protocol.StepFetch:
			pr.state = promoteFetch
			next = append(next, pr)
		case protocol.StepGiveUp:
			pr.state = promoteOver
			next = append(next, pr)
		}
	}
	return next
}

func dropAnswer(answers []protocol.Answer, id vtop.ReplicaID) []protocol.Answer {
	out := answers[:0]
	for _, a := range answers {
		if a.Replica != id {
			out = append(out, a)
		}
	}
	return out
}

// advance starts the epochs that are ready in one proposal, and works on the others beside it.
func (p *promoter) advance(next []*promotion, later *sync.WaitGroup) {
	var start []*promotion
	for _, pr := range next {
		switch pr.state {
		case promoteStart:
			start = append(start, pr)
		case promoteFetch:
			later.Go(func() { p.fetchMissing(pr) })
		case promoteOver:
			later.Go(func() { p.renew(pr) })
		}
	}
	if len(start) > 0 {
		later.Go(func() { p.start(start) })
	}
}
