package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/liveness"
	"github.com/vtop-log/vtop/cluster/placement"
	"github.com/vtop-log/vtop/fsm"
)

const (
	// claimGrace is how much longer a node is waited for whose name another data directory claims: that one takes its place.
	claimGrace = 30 * time.Second
	// againFirst and againLast bound the pause between two jobs for the same replica: it doubles.
	againFirst, againLast = 30 * time.Second, 10 * time.Minute
)

// Healing is what a Raft leader does about replicas that are missing.
type Healing struct {
	// Running are the jobs under way that healing, drains and replacements started; Limit is how many healing and drains start.
	Running, Limit int
	// Stuck says of ranges that want a replica elsewhere why they get none.
	Stuck map[vtop.Range]string
}

// Healing tells what this node, being Raft leader, found in its last look.
func (c *Controller) Healing() Healing {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.healing
	out.Stuck = maps.Clone(out.Stuck)
	if c.cfg.HealAfter > 0 {
		out.Limit = c.cfg.MaxHeals // before the first look, too
	}
	return out
}

// want names a replica that is to be replaced or added, for the pauses between jobs.
type want struct {
	r       vtop.Range
	replace vtop.NodeName
}

// again counts the jobs for one want.
type again struct {
	tries int
	due   time.Duration
}

// healer is one look at all ranges.
type healer struct {
	c        *Controller
	state    *fsm.State
	now      time.Duration
	verdicts map[vtop.NodeName]liveness.Verdict
	sites    []placement.Site
	racks    map[vtop.NodeName]string
	running  int
	stuck    map[vtop.Range]string
	wanted   map[want]bool
}

// heal submits jobs for replicas that are missing, cancels those that nobody needs any more, and has leases leave those who are
// replaced. A few jobs at a time: what is left comes with a later look.
func (c *Controller) heal(ctx context.Context) {
	now := c.now()
	if c.cfg.HealAfter <= 0 || now-c.healed < c.cfg.HealEvery {
		return
	}
	c.healed = now
	h := c.newHealer(now)
	h.cancel(ctx)
	h.handOver(ctx)
	var items []fsm.RepairRequest
	for r := range h.state.Ranges() {
		q, ok := h.request(r)
		if !ok {
			continue
		}
		key := want{q.Range, q.Replace}
		h.wanted[key] = true
		if a := c.again[key]; h.running+len(items) >= c.cfg.MaxHeals || now < a.due {
			continue
		}
		items = append(items, q)
		h.take(q.Destination)
	}
	for key := range c.again {
		if !h.wanted[key] && now >= c.again[key].due {
			delete(c.again, key)
		}
	}
	h.submit(ctx, items)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.healing = Healing{Running: h.running + len(items), Stuck: h.stuck}
}

func (c *Controller) newHealer(now time.Duration) *healer {
	h := &healer{
		c: c, state: c.cfg.Machine.State(), now: now, verdicts: map[vtop.NodeName]liveness.Verdict{}, racks: map[vtop.NodeName]string{},
		stuck: map[vtop.Range]string{}, wanted: map[want]bool{},
	}
	coming := map[vtop.NodeName]int{}
	for job := range h.state.Repairs() {
		if !job.Active() || job.Holes {
			continue
		}
		if counts(job) {
			h.running++
		}
		if job.Replica == 0 {
			coming[job.Destination]++
		}
	}
	for n := range h.state.Nodes() {
		v := c.cfg.Tracker.Verdict(n.Name)
		h.verdicts[n.Name], h.racks[n.Name] = v, n.Rack
		if n.State != fsm.NodeActive || !h.lives(n) || !v.HasRoom {
			continue
		}
		site := placement.Site{Name: n.Name, Rack: n.Rack, Replicas: coming[n.Name]}
		for range h.state.RangesOf(n.Name) {
			site.Replicas++
		}
		h.sites = append(h.sites, site)
	}
	return h
}

// counts reports whether a job is of those that healing, drains and replacements started.
func counts(job *fsm.RepairJob) bool { return job.Origin != fsm.OriginOperator }

// take counts a replica that is about to be on a node.
func (h *healer) take(node vtop.NodeName) {
	for i := range h.sites {
		if h.sites[i].Name == node {
			h.sites[i].Replicas++
		}
	}
}

// lives reports whether the registered life of a node is alive.
func (h *healer) lives(n *fsm.Node) bool {
	v := h.verdicts[n.Name]
	return v.Alive && v.Incarnation == n.Incarnation
}

// missed reports whether a node has been silent for so long that its replicas are rebuilt elsewhere.
func (h *healer) missed(name vtop.NodeName) (why string, missed bool) {
	n, ok := h.state.Node(name)
	if !ok || n.State == fsm.NodeGone {
		return fmt.Sprintf("%s was removed", name), true
	}
	after := h.c.cfg.HealAfter
	if len(n.Pending) > 0 {
		after += claimGrace
	}
	silent := h.verdicts[name].SilentFor
	return fmt.Sprintf("%s has been silent for %s", name, silent.Round(time.Second)), silent >= after
}

// request says which job a range needs most, if any: one at a time.
func (h *healer) request(r *fsm.Range) (q fsm.RepairRequest, ok bool) {
	if !r.Started {
		return q, false // who would make the learner? The lease comes first
	}
	for job := range h.state.ActiveRepairs(r.ID) {
		if !job.Holes {
			return q, false
		}
	}
	q = fsm.RepairRequest{Range: r.ID, Config: r.ConfigVersion, Origin: fsm.OriginHeal, MaxRate: h.c.cfg.RepairRate}
	for _, find := range []func(*fsm.Range, *fsm.RepairRequest) bool{h.broken, h.tooFew, h.draining} {
		if !find(r, &q) {
			continue
		}
		if q.Origin == fsm.OriginHeal && h.state.Heal().Paused {
			return q, false
		}
		if why := h.mayBegin(r); why != "" {
			h.stuck[r.ID] = q.Reason + "; " + why
			return q, false
		}
		if q.Destination == "" {
			return q, h.home(r, &q)
		}
		return q, true
	}
	return q, false
}

// mayBegin says why no voter of a range may be replaced now.
func (h *healer) mayBegin(r *fsm.Range) string {
	voters, able := r.Voters(), 0
	for _, rep := range voters {
		if n, ok := h.state.Node(rep.Node); ok && rep.CanVote() && h.lives(n) {
			able++
		}
	}
	if able > len(voters)/2 {
		return ""
	}
	return fmt.Sprintf("only %d of %d voters are alive and whole: nothing may be replaced; bring one back, or see 'vtopctl range recover'", able, len(voters))
}

// broken finds a voter that is lost or whose node is missed. A lost one is rebuilt where it was, if its node lives.
func (h *healer) broken(r *fsm.Range, q *fsm.RepairRequest) bool {
	for _, rep := range r.Voters() {
		n, known := h.state.Node(rep.Node)
		why, missed := h.missed(rep.Node)
		_, replaced := r.On(rep.Node)
		switch {
		case missed: // a learner that is on its way there waits for it, too
			q.Replace, q.Reason = rep.Node, why
			return true
		case rep.Lost != "" && replaced: // a learner is on its way there
		case rep.Lost != "" && known && n.State == fsm.NodeActive && h.lives(n):
			if r.CatalogueEnd <= r.LogStart {
				continue // nothing is sealed: the leader rebuilds it from its log
			}
			q.Destination, q.Replace, q.Reason = rep.Node, rep.Node, clip(rep.Lost)
			return true
		}
	}
	return false
}

// tooFew finds a range that has fewer voters than it was made with: one was removed, and what was to take its place did not come.
func (h *healer) tooFew(r *fsm.Range, q *fsm.RepairRequest) bool {
	if len(r.Voters()) >= len(r.Preferred) {
		return false
	}
	for _, rep := range r.Learners() {
		if _, missed := h.missed(rep.Node); !missed {
			return false // it takes the place
		}
	}
	q.Reason = fmt.Sprintf("%d voters of %d", len(r.Voters()), len(r.Preferred))
	return true
}

// draining finds a voter on a node that is being emptied.
func (h *healer) draining(r *fsm.Range, q *fsm.RepairRequest) bool {
	for _, rep := range r.Voters() {
		if n, ok := h.state.Node(rep.Node); ok && n.State == fsm.NodeDraining {
			q.Origin, q.Replace, q.Reason = fsm.OriginDrain, rep.Node, fmt.Sprintf("%s is draining", rep.Node)
			return true
		}
	}
	return false
}

// home finds a node for a replica, or notes why there is none.
func (h *healer) home(r *fsm.Range, q *fsm.RepairRequest) bool {
	var have []vtop.NodeName
	for _, rep := range r.Replicas {
		have = append(have, rep.Node)
	}
	home, why := placement.Home(h.sites, h.racks, have, q.Replace)
	if why != "" {
		h.stuck[r.ID] = q.Reason + "; " + why
		return false
	}
	q.Destination = home
	return true
}

// handOver moves the leases of holders whose successor votes already: a leader never removes itself.
func (h *healer) handOver(ctx context.Context) {
	var need []needy
	seen := map[vtop.Range]bool{}
	for job := range h.state.Repairs() {
		if job.Replica == 0 || job.Holes || !job.Active() && job.Step != fsm.RepairDone || seen[job.Range] {
			continue
		}
		r, ok := h.state.Range(job.Range)
		if !ok || r.Lease.Holder == "" || r.Lease.Holder != job.Replace || !r.Started {
			continue
		}
		if n, ok := h.state.Node(job.Destination); !ok || n.State == fsm.NodeGone || !h.lives(n) {
			continue // one that is drained by now is enough: the lease goes to any voter that is fit
		}
		old, votes := r.VoterOn(job.Replace)
		if rep, ok := r.Replica(job.Replica); !ok || !rep.CanVote() || !votes || old.ID >= job.Replica {
			continue
		}
		seen[job.Range] = true
		need = append(need, needy{r: r, reason: fmt.Sprintf("%s is replaced by %s", job.Replace, job.Destination), avoid: job.Replace})
	}
	need = append(need, h.unwantedHolders(seen)...)
	if len(need) > 0 {
		h.c.grant(ctx, h.state, h.c.nodes(h.state), need)
	}
}

// submit proposes jobs and notes when the same may be asked for again.
func (h *healer) submit(ctx context.Context, items []fsm.RepairRequest) {
	if len(items) == 0 {
		return
	}
	out, err := h.propose(ctx, &fsm.SubmitRepairs{Items: items, At: time.Now().UnixMilli()})
	if err != nil {
		h.c.cfg.Log.Warn("repairs not submitted", "jobs", len(items), "error", err)
		return
	}
	for i, item := range out.Items {
		q, name := items[i], h.state.RangeName(items[i].Range)
		if err := item.Err(); err != nil {
			h.c.cfg.Log.Info("repair refused", "range", name, "destination", q.Destination, "error", err)
			continue
		}
		key := want{q.Range, q.Replace}
		a := h.c.again[key]
		a.due = h.now + min(againFirst<<min(a.tries, 10), againLast)
		a.tries++
		h.c.again[key] = a
		h.c.cfg.Log.Info("repair submitted", "range", name, "repair", item.Repair, "destination", q.Destination, "replaces", q.Replace,
			"origin", q.Origin, "reason", q.Reason)
	}
}

func (h *healer) propose(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	out, err := h.c.cfg.Quorum.Propose(ctx, cmd)
	if err == nil {
		err = out.Err()
	}
	return out, err
}

// clip keeps a reason within what the metadata takes.
func clip(s string) string {
	if len(s) > 900 {
		return s[:900] + "…"
	}
	return s
}
