package group

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/fsm"
)

// consumerProtocol is the protocol type of consumers, whose metadata names topics.
const consumerProtocol = "consumer"

// Description is a classic group as operators are shown it.
type Description struct {
	State, ProtocolType, Protocol string
	Members                       []MemberDescription
}

// MemberDescription is one member. Metadata is for the group's protocol; it and Assignment are empty unless the group is stable.
type MemberDescription struct {
	MemberID             string
	InstanceID           *string
	ClientID, ClientHost string
	Metadata, Assignment []byte
}

// Describe shows a classic group. ErrGroupNotFound if there is none, or one of the consumer protocol.
func (c *Coordinator) Describe(ctx context.Context, id string) (Description, error) {
	g, _, err := c.enter(ctx, id, false)
	if err != nil {
		return Description{}, err
	}
	defer g.mu.Unlock()
	switch {
	case g.consumer != nil:
		return Description{}, fmt.Errorf("%w: %q is one of the consumer protocol", ErrGroupNotFound, id)
	case !g.classic.stored && g.memberCount() == 0:
		return Description{}, fmt.Errorf("%w: %q", ErrGroupNotFound, id)
	}
	m := g.classic
	d := Description{State: m.state.String(), ProtocolType: m.protocolType}
	stable := m.state == classicStable
	if stable {
		d.Protocol = m.protocol
	}
	for _, member := range m.sorted() {
		md := MemberDescription{MemberID: member.id, InstanceID: member.instanceID(), ClientID: member.clientID, ClientHost: member.clientHost}
		if stable {
			md.Metadata, md.Assignment = member.metadata(m.protocol), member.assignment
		}
		d.Members = append(d.Members, md)
	}
	return d, nil
}

// Listed is one group in a list.
type Listed struct {
	ID, ProtocolType, State string
	Kind                    fsm.GroupKind
}

// List names the groups that this process coordinates, by id. ErrLoading until it has caught up with the metadata.
func (c *Coordinator) List() ([]Listed, error) {
	if !c.cfg.CaughtUp() {
		return nil, fmt.Errorf("%w: the node is catching up with the metadata", ErrLoading)
	}
	byID := map[string]Listed{}
	st := c.cfg.Machine.State()
	for slot := range fsm.Slot(fsm.GroupSlots) {
		if !st.Coordinator(slot).HeldBy(c.cfg.Self, c.cfg.Incarnation) {
			continue
		}
		for g := range st.GroupsOf(slot) {
			l := Listed{ID: g.ID, ProtocolType: g.ProtocolType, State: classicEmpty.String(), Kind: g.Kind}
			if g.Kind == fsm.GroupConsumer {
				l.ProtocolType = consumerProtocol
			}
			byID[g.ID] = l
		}
	}
	for _, g := range c.inMemory(func(*group) bool { return true }) {
		g.mu.Lock()
		if l, ok := g.listedLocked(st); ok {
			byID[g.id] = l
		}
		g.mu.Unlock()
	}
	out := make([]Listed, 0, len(byID))
	for _, l := range byID {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func (g *group) listedLocked(st *fsm.State) (Listed, bool) {
	l := st.Coordinator(g.slot)
	switch {
	case g.gone != nil || l.Epoch != g.epoch || !l.HeldBy(g.c.cfg.Self, g.c.cfg.Incarnation):
		return Listed{}, false
	case g.consumer != nil:
		return Listed{g.id, consumerProtocol, g.consumer.stateName(), fsm.GroupConsumer}, g.memberCount() > 0
	}
	return Listed{g.id, g.classic.protocolType, g.classic.state.String(), fsm.GroupClassic}, g.classic.stored || g.memberCount() > 0
}

// subscribes reports whether a member reads a topic, as far as its metadata can be read.
func (g *classicGroup) subscribes(topic string) bool {
	if g.protocolType != consumerProtocol {
		return false
	}
	for _, m := range g.members {
		for _, p := range m.protocols {
			var meta kmsg.ConsumerMemberMetadata
			if meta.ReadFrom(p.Metadata) == nil && slices.Contains(meta.Topics, topic) {
				return true
			}
		}
	}
	return false
}

// counters count since the start.
type counters struct{ entries, changes, commits, expired, generations atomic.Uint64 }

// Stats are a coordinator's figures. The counts are since the start.
type Stats struct {
	// Slots held now by the applied state; Groups and MemberBytes in memory now; Waiting changes that are not committed yet.
	Slots, Groups, Waiting int
	MemberBytes            int64
	// Entries proposed to the metadata log, and Changes of groups that they carried; Commits answered, Expired offsets, Generations
	// of classic groups made.
	Entries, Changes, Commits, Expired, Generations uint64
}

// Stats returns the present figures.
func (c *Coordinator) Stats() Stats {
	s := Stats{
		MemberBytes: c.bytes.Load(), Entries: c.counts.entries.Load(), Changes: c.counts.changes.Load(), Commits: c.counts.commits.Load(),
		Expired: c.counts.expired.Load(), Generations: c.counts.generations.Load(),
	}
	for l := range c.cfg.Machine.State().CoordinatorsOf(c.cfg.Self) {
		if l.Incarnation == c.cfg.Incarnation {
			s.Slots++
		}
	}
	c.mu.Lock()
	s.Groups = len(c.groups)
	c.mu.Unlock()
	c.proposer.mu.Lock()
	s.Waiting = len(c.proposer.queue)
	c.proposer.mu.Unlock()
	return s
}
