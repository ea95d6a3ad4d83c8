package meta

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// The birth of a cluster. Why there are never two:
//
// A birth is decided by its coordinator alone, once every member has pledged itself to it, durably. A node has one
// pledge. The members are the nodes at all addresses of --join, and more up to bootstrap-expect; so two births of
// nodes with the same --join have all of those in common, and each of them would have had to pledge twice. A pledge
// moves only when its birth is void: its coordinator says that it is not founding that cluster (it gave it up
// undecided, or lost its disk). A member acts under the cluster (starts Raft) only when it has seen it decided, and then
// refuses every pledge; and Raft's first configuration is the whole voter set, so the cluster does nothing before a
// majority of the pledged disks act under it. If the coordinator's disk was lost after it decided, then either
// some member saw that, and says so to whoever founds anew; or none did, and that cluster never had a majority.
//
// Every step can be repeated after a crash: the pledge of the coordinator is its record of the attempt.

const (
	birthPauseMin = 100 * time.Millisecond
	birthPauseMax = 2 * time.Second
	complainEvery = 15 * time.Second
)

// findCluster returns the state of a node that belongs to a cluster; it asks until it does or ctx ends.
func (m *Meta) findCluster() (bornState, error) {
	pause := newBackoff(birthPauseMin, birthPauseMax)
	say := &complain{log: m.log, every: complainEvery}
	for {
		if st := m.born.get(); st.Cluster != "" {
			return st, nil
		}
		if err := m.birthStep(m.seek(m.ctx), say); err != nil {
			return bornState{}, err
		}
		if m.born.get().Cluster == "" && !sleep(m.ctx, pause.pause()) {
			return bornState{}, context.Cause(m.ctx)
		}
	}
}

// birthStep looks at one round of answers and takes at most one step. An error is of the node's own disk.
func (m *Meta) birthStep(answers []answer, say *complain) error {
	st := m.born.get()
	if st.Pledge != nil {
		settled, err := m.settlePledge(st.Pledge, answers)
		if settled || err != nil {
			return err
		}
		st = m.born.get()
	}
	clusters := clustersOf(answers)
	switch {
	case len(clusters) > 1:
		m.waitFor(say, "found more than one cluster; this node joins none of them: give --join addresses of one", "clusters", describe(clusters))
		return nil
	case len(clusters) == 1:
		return m.joinFound(st, clusters, answers, say)
	case m.cfg.HoldsData:
		m.waitFor(say, "holds data of a cluster and waits for that cluster to answer", "asked", addressesOf(answers))
		return nil
	case m.cfg.BootstrapExpect == 0:
		m.waitFor(say, "waits for a cluster to join; bootstrap-expect is not set, so none is founded", "asked", addressesOf(answers))
		return nil
	case st.Pledge != nil && st.Pledge.Coordinator != m.name():
		m.waitFor(say, "pledged, and waits for the coordinator to decide", "birth", st.Pledge.String())
		return nil
	}
	return m.found(st, answers, say)
}

func (m *Meta) waitFor(say *complain, text string, args ...any) {
	status := text
	for i := 0; i+1 < len(args); i += 2 {
		status += fmt.Sprintf("; %v: %v", args[i], args[i+1])
	}
	m.setStatus(status)
	say.say(text, args...)
}

// settlePledge sees whether the pledged birth became a cluster, or is void.
func (m *Meta) settlePledge(p *birth, answers []answer) (settled bool, err error) {
	for _, a := range answers {
		if a.resp != nil && a.cluster() == p.Cluster && p.has(m.asMember()) {
			_, err = m.born.join(p.Cluster, a.resp.GetGeneration(), p, m.asMember())
			return true, err
		}
	}
	for _, a := range answers {
		if a.resp == nil || a.name() != p.Coordinator || p.Coordinator == m.name() || a.cluster() == p.Cluster {
			continue
		}
		theirs, _ := transport.UUIDFrom("pledge.cluster_id", a.resp.GetPledge().GetClusterId())
		if theirs.String() != p.Cluster {
			m.log.Info("pledge is void, its coordinator does not found that cluster", "birth", p.String())
			return false, m.born.void(p.Cluster)
		}
	}
	return false, nil
}

// joinFound makes the one cluster that answered this node's own. A founding disk does so at once, since the cluster
// needs it to live. Any other waits until a member has caught up with a leader: a cluster whose founders lost
// their disks before a majority acted is never heard of again, and must not keep the others.
func (m *Meta) joinFound(st bornState, clusters map[string][]string, answers []answer, say *complain) error {
	var id string
	for id = range clusters {
	}
	if st.Pledge != nil && st.Pledge.Coordinator == m.name() {
		// An own birth that is not decided is dropped: nobody else decides it.
		if err := m.born.void(st.Pledge.Cluster); err != nil {
			return err
		}
	} else if st.Pledge != nil {
		m.waitFor(say, "a cluster answers, but this node is pledged to another birth whose coordinator does not answer",
			"cluster", describe(clusters), "birth", st.Pledge.String())
		return nil
	}
	b := birthOf(id, answers)
	founder := b != nil && b.has(m.asMember())
	for _, a := range answers {
		if a.resp != nil && a.cluster() == id && (founder || a.resp.GetCaughtUp()) {
			m.log.Info("found a cluster", "cluster", id, "at", a.addr, "node", a.name())
			_, err := m.born.join(id, a.resp.GetGeneration(), b, m.asMember())
			return err
		}
	}
	m.waitFor(say, "found a cluster, and waits until it has a leader", "cluster", describe(clusters))
	return nil
}

// birthOf is how the cluster was born, by whoever answered and knows it; nil if nobody does.
func birthOf(cluster string, answers []answer) *birth {
	for _, a := range answers {
		if a.cluster() != cluster {
			continue
		}
		p := a.resp.GetPledge()
		b, err := birthFrom(p.GetClusterId(), p.GetCoordinator(), p.GetMembers())
		if err == nil && b.Cluster == cluster {
			return b
		}
	}
	return nil
}

// found takes the coordinator's part, if it is this node's: the one with the lowest name.
func (m *Meta) found(st bornState, answers []answer, say *complain) error {
	members, joined, reason := m.gather(answers)
	if reason != "" {
		m.waitFor(say, "cluster is not born yet: "+reason)
		return nil
	}
	if first := slices.Min(joined); first < m.name() {
		m.waitFor(say, "waits for another node to found the cluster", "coordinator", string(first))
		return nil
	}
	members = choose(members, joined, m.name(), m.cfg.BootstrapExpect)
	attempt := st.Pledge
	if attempt == nil || !sameMembers(attempt.Members, members) {
		var id vtop.ClusterID
		if _, err := rand.Read(id[:]); err != nil {
			return err
		}
		attempt = &birth{Cluster: id.String(), Coordinator: m.name(), Members: members}
		if _, err := m.born.pledge(attempt, m.asMember()); err != nil {
			return err
		}
	}
	if !m.collect(attempt, say) {
		return nil
	}
	if _, err := m.born.decide(attempt.Cluster); err != nil {
		return err
	}
	m.log.Info("cluster is born", "cluster", attempt.Cluster, "members", attempt.String())
	return nil
}

// gather lists the empty nodes that answered, this one among them, and the names at the addresses of --join. reason
// says why there can be no birth now.
func (m *Meta) gather(answers []answer) (members []member, joined []vtop.NodeName, reason string) {
	self := m.asMember()
	byName := map[vtop.NodeName]member{self.Name: self}
	var silent []string
	for _, a := range answers {
		switch {
		case a.self && a.join:
			joined = append(joined, self.Name)
		case a.self:
		case a.resp == nil && a.join:
			silent = append(silent, fmt.Sprintf("%s (%v)", a.addr, a.err))
		case a.resp == nil:
		default:
			other := a.member()
			if why := m.unfit(a, byName); why != "" {
				if a.join {
					return nil, nil, why
				}
				continue
			}
			byName[other.Name] = other
			if a.join {
				joined = append(joined, other.Name)
			}
		}
	}
	if len(silent) > 0 {
		return nil, nil, "no answer from " + strings.Join(silent, ", ")
	}
	if len(joined) == 0 {
		joined = append(joined, self.Name)
	}
	for _, f := range byName {
		members = append(members, f)
	}
	if len(members) < m.cfg.BootstrapExpect {
		return nil, nil, fmt.Sprintf("%d of %d expected nodes are there: %s", len(members), m.cfg.BootstrapExpect, namesOf(members))
	}
	return members, joined, ""
}

// unfit says why a node that answered cannot take part in a birth with this one.
func (m *Meta) unfit(a answer, byName map[vtop.NodeName]member) string {
	n, f := a.resp.GetNode(), a.member()
	if known, ok := byName[f.Name]; ok && !known.sameDisk(f) {
		return fmt.Sprintf("two nodes are named %q: at %s (storage %s) and at %s (storage %s); give one of them another --node-id",
			f.Name, known.Peer, known.Storage, f.Peer, f.Storage)
	}
	switch {
	case !a.resp.GetEmpty():
		return fmt.Sprintf("node %q at %s holds data of a cluster that it does not name: empty its data directory or remove it from --join", f.Name, a.addr)
	case int(a.resp.GetBootstrapExpect()) != m.cfg.BootstrapExpect:
		return fmt.Sprintf("node %q at %s has bootstrap-expect %d, this node %d: give all the same", f.Name, a.addr, a.resp.GetBootstrapExpect(), m.cfg.BootstrapExpect)
	case fsm.Level(n.GetFeatureLevel()) != fsm.LevelMax:
		return fmt.Sprintf("node %q at %s has feature level %d, this node %d: found the cluster with one build", f.Name, a.addr, n.GetFeatureLevel(), fsm.LevelMax)
	}
	if err := (&birth{Cluster: vtop.UUID{}.String(), Coordinator: f.Name, Members: []member{f}}).validate(); err != nil {
		return fmt.Sprintf("node at %s: %v", a.addr, err)
	}
	return ""
}

// choose takes the nodes of --join, the coordinator, and the lowest names of the others until expect are
// there. The order decides who is asked first and who is a voter at birth.
func choose(all []member, joined []vtop.NodeName, self vtop.NodeName, expect int) []member {
	slices.SortFunc(all, func(a, b member) int { return strings.Compare(string(a.Name), string(b.Name)) })
	var must, more []member
	for _, f := range all {
		if f.Name == self || slices.Contains(joined, f.Name) {
			must = append(must, f)
		} else {
			more = append(more, f)
		}
	}
	for len(must) < expect && len(more) > 0 {
		must, more = append(must, more[0]), more[1:]
	}
	slices.SortFunc(must, func(a, b member) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return must
}

func sameMembers(a, b []member) bool {
	return slices.EqualFunc(a, b, member.sameDisk)
}

// collect asks every member for its pledge, in the order of names: of two coordinators, the one that comes
// second is refused by the first member they share, and gives way.
func (m *Meta) collect(b *birth, say *complain) bool {
	id, err := vtop.ParseUUID(b.Cluster)
	if err != nil {
		return false
	}
	req := &peerpb.PledgeRequest{ClusterId: id[:], BootstrapExpect: uint32(m.cfg.BootstrapExpect)}
	for _, f := range b.Members {
		req.Members = append(req.Members, f.pb())
		if f.Name == b.Coordinator {
			req.Coordinator = f.pb()
		}
	}
	for _, f := range b.Members {
		if f.Name == m.name() {
			continue
		}
		ctx, cancel := context.WithTimeout(m.ctx, askTimeout)
		resp, err := m.cfg.Peers.Pledge(ctx, transport.Target{Name: f.Name, Addr: f.Peer}, req)
		cancel()
		switch {
		case err != nil:
			m.waitFor(say, "cluster is not born yet: a member does not pledge", "node", string(f.Name), "at", f.Peer, "error", err.Error())
			return false
		case !resp.GetGranted():
			m.waitFor(say, "cluster is not born yet: a member refuses", "node", string(f.Name), "reason", resp.GetReason())
			if other := resp.GetPledge().GetCoordinator(); other != "" && vtop.NodeName(other) != m.name() {
				if err := m.born.void(b.Cluster); err != nil {
					m.log.Error("own pledge not given up", "error", err)
				}
			}
			return false
		}
	}
	return true
}

func (m *Meta) asMember() member {
	self := m.cfg.Who.Self()
	return member{Name: self.Name, Storage: self.Storage.String(), ServerID: self.ServerID, Peer: m.cfg.Addresses.Peer}
}

func (f member) pb() *peerpb.PledgeMember {
	storage, _ := vtop.ParseUUID(f.Storage)
	return &peerpb.PledgeMember{Name: string(f.Name), StorageId: storage[:], ServerId: f.ServerID, PeerAddr: f.Peer}
}

func memberFrom(p *peerpb.PledgeMember) (member, error) {
	storage, err := transport.UUIDFrom("member.storage_id", p.GetStorageId())
	if err != nil {
		return member{}, err
	}
	return member{Name: vtop.NodeName(p.GetName()), Storage: storage.String(), ServerID: p.GetServerId(), Peer: p.GetPeerAddr()}, nil
}

// clustersOf maps each cluster that answered to where.
func clustersOf(answers []answer) map[string][]string {
	out := map[string][]string{}
	for _, a := range answers {
		if a.resp != nil && a.cluster() != "" {
			out[a.cluster()] = append(out[a.cluster()], a.addr)
		}
	}
	return out
}

func describe(clusters map[string][]string) string {
	var parts []string
	for id, at := range clusters {
		parts = append(parts, id+" at "+strings.Join(at, ", "))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func addressesOf(answers []answer) string {
	var parts []string
	for _, a := range answers {
		parts = append(parts, a.addr)
	}
	return strings.Join(parts, ", ")
}

func namesOf(members []member) string {
	var parts []string
	for _, f := range members {
		parts = append(parts, string(f.Name))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
