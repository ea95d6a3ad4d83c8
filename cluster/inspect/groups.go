package inspect

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

var _ adminapi.GroupHandler = (*Face)(nil)

// stateUnknown is shown of a group whose coordinator does not answer.
const stateUnknown = "unknown"

// Groups implements adminapi.GroupHandler: all but the state comes from the metadata.
func (f *Face) Groups(ctx context.Context) ([]adminapi.Group, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	state := n.State()
	states := f.groupStates(ctx, n, nil)
	out := []adminapi.Group{}
	for g := range state.Groups() {
		out = append(out, describeGroup(state, g, states))
	}
	return out, nil
}

// groupStates asks the coordinators, or only the one named, for the states of their groups. Who does not answer has no entry.
func (f *Face) groupStates(ctx context.Context, n *cluster.Node, only *vtop.NodeName) map[vtop.NodeName]map[string]string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	state := n.State()
	holders := map[vtop.NodeName]*fsm.Node{}
	for c := range state.Coordinators() {
		if node, ok := state.Node(c.Holder); ok && (only == nil || *only == c.Holder) {
			holders[c.Holder] = node
		}
	}
	out := map[vtop.NodeName]map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, node := range holders {
		wg.Go(func() {
			groups, err := f.askGroups(ctx, n, node)
			if err != nil {
				f.log.Debug("coordinator did not answer", "node", name, "error", err)
				return
			}
			states := make(map[string]string, len(groups))
			for _, g := range groups {
				states[g.Group] = g.State
			}
			mu.Lock()
			defer mu.Unlock()
			out[name] = states
		})
	}
	wg.Wait()
	return out
}

func (f *Face) askGroups(ctx context.Context, n *cluster.Node, node *fsm.Node) ([]adminapi.LocalGroup, error) {
	switch {
	case node.Name == n.Self():
		return f.LocalGroups(ctx)
	case node.Addresses.Admin == "":
		return nil, errors.New("no admin address is known")
	}
	return f.clientOf(node.Addresses.Admin).LocalGroups(ctx)
}

// LocalGroups implements adminapi.GroupHandler.
func (f *Face) LocalGroups(context.Context) ([]adminapi.LocalGroup, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	groups, err := n.Groups()
	if err != nil {
		return nil, groupRefusal(err)
	}
	listed, err := groups.List()
	if err != nil {
		return nil, groupRefusal(err)
	}
	out := []adminapi.LocalGroup{}
	for _, l := range listed {
		out = append(out, adminapi.LocalGroup{Group: l.ID, State: l.State})
	}
	return out, nil
}

func describeGroup(state *fsm.State, g *fsm.Group, states map[vtop.NodeName]map[string]string) adminapi.Group {
	c := state.Coordinator(g.Slot)
	out := adminapi.Group{
		Group: g.ID, Kind: g.Kind.String(), State: stateUnknown, Epoch: g.Epoch, Members: g.Members, Offsets: g.Offsets,
		Coordinator: string(c.Holder), Slot: int32(g.Slot), CoordinatorEpoch: int32(c.Epoch),
	}
	if now, ok := states[c.Holder][g.ID]; ok {
		out.State = now
	}
	if g.EmptySince != 0 {
		out.EmptySince = time.UnixMilli(g.EmptySince).UTC()
	}
	return out
}

func groupNamed(state *fsm.State, id string) (*fsm.Group, error) {
	g, ok := state.Group(id)
	if !ok {
		return nil, adminapi.Errorf(adminapi.CodeNotFound, "there is no group %q", id).WithHint("vtopctl group list shows the groups")
	}
	return g, nil
}

// Group implements adminapi.GroupHandler.
func (f *Face) Group(ctx context.Context, id string) (*adminapi.GroupDetail, error) {
	p, err := f.look(ctx, "")
	if err != nil {
		return nil, err
	}
	g, err := groupNamed(p.state, id)
	if err != nil {
		return nil, err
	}
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	holder := p.state.Coordinator(g.Slot).Holder
	return p.group(g, f.groupStates(ctx, n, &holder)), nil
}

func (p *picture) group(g *fsm.Group, states map[vtop.NodeName]map[string]string) *adminapi.GroupDetail {
	out := &adminapi.GroupDetail{
		Group: describeGroup(p.state, g, states), AssignmentEpoch: g.AssignmentEpoch, Protocol: g.Protocol,
		MembersDetail: []adminapi.GroupMember{}, CommittedDetail: []adminapi.GroupOffset{},
	}
	reads := map[vtop.Range]string{}
	for _, m := range group.StoredMembers(p.state, g.ID) {
		out.MembersDetail = append(out.MembersDetail, adminapi.GroupMember{
			ID: m.ID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost, Rack: m.Rack, Epoch: m.Epoch,
			RebalanceMS: m.Rebalance.Milliseconds(), Topics: m.Topics, Regex: m.Regex,
			Assigned: p.rangeNames(m.Assigned), Revoking: p.rangeNames(m.Revoking), Target: p.rangeNames(m.Target),
		})
		for _, r := range m.Assigned {
			reads[r] = m.ID
		}
	}
	for o := range p.state.Offsets(g.ID) {
		out.CommittedDetail = append(out.CommittedDetail, p.groupOffset(o, reads[o.Range]))
	}
	return out
}

func (p *picture) rangeNames(ranges []vtop.Range) []string {
	out := make([]string, len(ranges))
	for i, r := range ranges {
		out[i] = p.state.RangeName(r)
	}
	return out
}

func (p *picture) groupOffset(o *fsm.GroupOffset, member string) adminapi.GroupOffset {
	out := adminapi.GroupOffset{
		Range: o.Range.Index, Offset: int64(o.Offset), LeaderEpoch: int32(o.LeaderEpoch), Metadata: o.Metadata, Member: member,
		CommittedAt: time.UnixMilli(o.CommittedAt).UTC(), LogStart: adminapi.Unknown, HighWatermark: adminapi.Unknown, Lag: adminapi.Unknown,
	}
	t, known := p.state.Topic(o.Range.Topic)
	r, there := p.state.Range(o.Range)
	if !known || !there {
		return out
	}
	l := p.lease(t, r)
	out.Topic, out.LogStart, out.HighWatermark = t.Name, l.LogStart, l.HighWatermark
	if l.HighWatermark != adminapi.Unknown {
		out.Lag = max(0, l.HighWatermark-out.Offset)
	}
	return out
}

// groupRefusal turns what a coordinator refuses into what operators read.
func groupRefusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, group.ErrGroupNotFound):
		return adminapi.Errorf(adminapi.CodeNotFound, "%v", err).WithHint("vtopctl group list shows the groups")
	case errors.Is(err, group.ErrNotEmpty), errors.Is(err, group.ErrUnknownMember), errors.Is(err, group.ErrStaleMemberEpoch), errors.Is(err, group.ErrIllegalGeneration):
		return adminapi.Errorf(adminapi.CodeConflict, "%v", err).WithHint("stop its members first; vtopctl group describe shows them")
	case errors.Is(err, group.ErrNotCoordinator):
		return adminapi.Errorf(adminapi.CodeConflict, "%v", err).WithHint("the coordinator has moved meanwhile: try again")
	case errors.Is(err, group.ErrLoading), errors.Is(err, group.ErrNotAvailable):
		return adminapi.Errorf(adminapi.CodeUnavailable, "%v", err).WithHint("try again soon; is there a Raft leader? see vtopctl status")
	case errors.Is(err, group.ErrInvalidGroup):
		return adminapi.Errorf(adminapi.CodeInvalid, "%v", err)
	}
	return refusal(err)
}

// coordinatorOf finds who coordinates a group: this node's coordinator, or a client to the admin port of the node that does.
func (f *Face) coordinatorOf(n *cluster.Node, id, at string) (*group.Coordinator, *adminapi.Client, string, error) {
	c := n.State().CoordinatorOf(id)
	switch {
	case c.Holder == n.Self():
		here, err := n.Groups()
		return here, nil, "", groupRefusal(err)
	case at != "":
		return nil, nil, "", adminapi.Errorf(adminapi.CodeConflict, "%s does not coordinate group %q: by its metadata %q does", n.Self(), id, c.Holder).
			WithHint("the coordinator is moving: try again")
	case c.Holder == "":
		return nil, nil, "", adminapi.Errorf(adminapi.CodeUnavailable, "nobody coordinates group %q now", id).WithHint("try again soon; is there a Raft leader? see vtopctl status")
	}
	node, ok := n.State().Node(c.Holder)
	if !ok || node.Addresses.Admin == "" {
		return nil, nil, "", adminapi.Errorf(adminapi.CodeUnavailable, "no admin address is known of %s, which coordinates group %q", c.Holder, id)
	}
	return nil, f.clientOf(node.Addresses.Admin), string(c.Holder), nil
}

// DeleteGroup implements adminapi.GroupHandler. It returns once the metadata does not have the group any more.
func (f *Face) DeleteGroup(ctx context.Context, id, at string) error {
	n, err := f.ready()
	if err != nil {
		return err
	}
	if _, err := groupNamed(n.State(), id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	here, there, holder, err := f.coordinatorOf(n, id, at)
	switch {
	case err != nil:
		return err
	case there != nil:
		return there.DeleteGroup(ctx, id, holder)
	}
	return groupRefusal(here.Delete(ctx, id))
}
