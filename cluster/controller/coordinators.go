package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/liveness"
	"github.com/vtop-log/vtop/cluster/placement"
	"github.com/vtop-log/vtop/fsm"
)

// slotMoves is the most slots with groups that leave a living coordinator in one look: the clients of each must find the next one.
const slotMoves = 2

// site is a node as the spreading of coordinator slots sees it.
type site struct {
	placement.Node
	// home: fit for so long that slots with groups return to it.
	home bool
	// busy and slots count those that it holds, the ones with groups and all.
	busy, slots int
}

// slotHolder is one slot and where it stands.
type slotHolder struct {
	lease *fsm.Coordinator
	// busy: the slot has groups, so that a move is noticed by their clients.
	busy bool
	// lost says why no living process holds it, or why it should leave its holder; empty if neither.
	lost string
	// lives: its holder runs, and goes on where nobody can take its place.
	lives bool
}

// homeless is the time for which there have been slots that nobody could take, and whether that was said.
type homeless struct {
	since time.Duration
	said  bool
}

// coordinate gives the coordinator slots that no living node holds to those that hold fewest, and evens out the others: slots without
// groups at once, since nobody notices, those with groups a few at a time and only every BalanceEvery.
func (c *Controller) coordinate(ctx context.Context, state *fsm.State, nodes []placement.Node) {
	now := c.now()
	sites := make([]*site, 0, len(nodes))
	for _, n := range nodes {
		since, fit := c.fitSince[n.Name]
		sites = append(sites, &site{Node: n, home: fit && n.HasRoom && now-since >= c.cfg.HomeAfter})
	}
	s := &spread{sites: sites, slots: c.slots(state, sites)}
	s.place()
	s.even()
	if now-c.slotsBalanced >= c.cfg.BalanceEvery {
		c.slotsBalanced = now
		s.evenBusy(slotMoves)
	}
	c.noteHomeless(now, s.homeless)
	if len(s.grants) > 0 {
		c.proposeSlots(ctx, s.grants)
	}
}

// noteHomeless says once that slots have had no coordinator for a while. A leader that has just begun knows nobody yet.
func (c *Controller) noteHomeless(now time.Duration, slots int) {
	switch {
	case slots == 0:
		c.homeless = homeless{}
	case c.homeless.since == 0:
		c.homeless.since = now
	case !c.homeless.said && now-c.homeless.since >= c.cfg.PromotionDeadline:
		c.homeless.said = true
		c.cfg.Log.Warn("no node can coordinate consumer groups", "slots", slots)
	}
}

// slots judges every slot, and counts for each node those that it goes on holding.
func (c *Controller) slots(state *fsm.State, sites []*site) []*slotHolder {
	verdicts := map[vtop.NodeName]liveness.Verdict{}
	byName := map[vtop.NodeName]*site{}
	room := false
	for _, n := range sites {
		verdicts[n.Name], byName[n.Name] = c.cfg.Tracker.Verdict(n.Name), n
		room = room || n.HasRoom
	}
	out := make([]*slotHolder, 0, fsm.GroupSlots)
	for lease := range state.Coordinators() {
		h := &slotHolder{lease: lease, lost: processLost(state, verdicts, lease.Holder, lease.Incarnation)}
		for range state.GroupsOf(lease.Slot) {
			h.busy = true
			break
		}
		v := verdicts[lease.Holder]
		h.lives = v.Alive && v.Incarnation == lease.Incarnation
		switch {
		case lease.Holder == "":
			h.lost = "no holder"
		case h.lost == "" && !v.HasRoom && room:
			h.lost = fmt.Sprintf("%s: %s", lease.Holder, v.Reason)
		}
		if h.lost == "" {
			byName[lease.Holder].hold(h, 1)
		}
		out = append(out, h)
	}
	return out
}

func (n *site) hold(h *slotHolder, count int) {
	n.slots += count
	if h.busy {
		n.busy += count
	}
}

// spread decides who coordinates what. It knows no clock and no state machine.
type spread struct {
	sites  []*site
	slots  []*slotHolder
	grants []fsm.CoordinatorGrant
	// homeless counts the slots that nobody can take.
	homeless int
}

// place gives every lost slot to the fit node that has fewest. A node without room takes some only where none has room. A slot that
// nobody can take stays with its holder, if that still runs.
func (s *spread) place() {
	for _, h := range s.slots {
		if h.lost == "" {
			continue
		}
		to := s.least(func(n *site) bool { return n.HasRoom }, h.busy)
		if to == nil {
			to = s.least(func(n *site) bool { return n.Fit }, h.busy)
		}
		if to == nil {
			if !h.lives {
				s.homeless++
			}
			continue
		}
		s.move(h, nil, to, h.lost)
	}
}

// least finds the node with fewest slots among those that may take one: of the same kind first, then in all.
func (s *spread) least(may func(*site) bool, busy bool) (best *site) {
	for _, n := range s.sites {
		if may(n) && (best == nil || compareSites(n, best, busy) < 0) {
			best = n
		}
	}
	return best
}

func compareSites(a, b *site, busy bool) int {
	if busy {
		return cmp.Or(cmp.Compare(a.busy, b.busy), cmp.Compare(a.slots, b.slots))
	}
	return cmp.Compare(a.slots, b.slots)
}

// move notes a grant. from is nil for a slot that nobody holds.
func (s *spread) move(h *slotHolder, from, to *site, reason string) {
	s.grants = append(s.grants, fsm.CoordinatorGrant{
		Slot: h.lease.Slot, Holder: to.Name, Incarnation: to.Incarnation, Expected: h.lease.Epoch, Reason: reason,
	})
	if from != nil {
		from.hold(h, -1)
	}
	to.hold(h, 1)
	s.slots = slices.DeleteFunc(slices.Clone(s.slots), func(x *slotHolder) bool { return x == h }) // one move a look
}

// even moves slots without groups until no node holds two more than another.
func (s *spread) even() {
	for {
		to := s.least(func(n *site) bool { return n.HasRoom }, false)
		h, from := s.heaviest(false, func(n *site) int { return n.slots })
		if to == nil || h == nil || from.slots-to.slots < 2 {
			return
		}
		s.move(h, from, to, "coordinators are spread evenly")
	}
}

// evenBusy moves at most limit slots with groups to nodes that have been fit for a while.
func (s *spread) evenBusy(limit int) {
	for range limit {
		to := s.least(func(n *site) bool { return n.home }, true)
		h, from := s.heaviest(true, func(n *site) int { return n.busy })
		if to == nil || h == nil || from.busy-to.busy < 2 {
			return
		}
		s.move(h, from, to, "coordinators are spread evenly")
	}
}

// heaviest finds a slot of a kind on the node that weighs most among those that hold one.
func (s *spread) heaviest(busy bool, weight func(*site) int) (found *slotHolder, from *site) {
	for _, h := range s.slots {
		if h.busy != busy || h.lost != "" {
			continue
		}
		at := slices.IndexFunc(s.sites, func(n *site) bool { return n.Name == h.lease.Holder })
		if n := s.sites[at]; from == nil || weight(n) > weight(from) {
			found, from = h, n
		}
	}
	return found, from
}

func (c *Controller) proposeSlots(ctx context.Context, grants []fsm.CoordinatorGrant) {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	out, err := c.cfg.Quorum.Propose(ctx, &fsm.GrantCoordinators{Items: grants, At: time.Now().UnixMilli()})
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		c.cfg.Log.Warn("coordinators not taken", "slots", len(grants), "error", err)
		return
	}
	taken, why := map[vtop.NodeName]int{}, map[vtop.NodeName]string{}
	for i, item := range out.Items {
		if err := item.Err(); err != nil {
			c.cfg.Log.Info("coordinator refused", "slot", item.Slot, "error", err)
			continue
		}
		taken[grants[i].Holder]++
		why[grants[i].Holder] = grants[i].Reason
		c.cfg.Log.Debug("coordinator granted", "slot", item.Slot, "holder", grants[i].Holder, "epoch", item.Epoch, "reason", grants[i].Reason)
	}
	for node, n := range taken {
		c.cfg.Log.Info("coordinators granted", "holder", node, "slots", n, "reason", why[node])
	}
}
