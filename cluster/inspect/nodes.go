package inspect

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster"
	"github.com/vtop-log/vtop/cluster/meta"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// Nodes implements adminapi.Handler.
func (f *Face) Nodes(ctx context.Context) ([]adminapi.Node, error) {
	p, err := f.look(ctx, noTopic)
	if err != nil {
		return nil, err
	}
	return p.nodes(), nil
}

// noTopic asks the nodes for no range: a name that no topic can have.
const noTopic = "\x00"

func (p *picture) nodes() []adminapi.Node {
	servers := map[vtop.NodeName]meta.RaftServer{}
	for _, s := range p.node.RaftServers() {
		servers[s.Name] = s
	}
	leader, _ := p.node.RaftLeader()
	verdicts := p.verdicts()
	out := []adminapi.Node{}
	for n := range p.state.Nodes() {
		node := adminapi.Node{
			Name: string(n.Name), ID: int32(n.Broker), State: n.State.String(), Incarnation: uint64(n.Incarnation),
			KafkaAddr: n.Addresses.Kafka, PeerAddr: n.Addresses.Peer, GossipAddr: n.Addresses.Gossip, AdminAddr: n.Addresses.Admin,
			RaftRole: raftRole(servers, n.Name, leader), Rack: n.Rack, StorageID: n.Storage.String(), Version: n.Version,
			LastSeenMS: adminapi.Unknown, DiskState: "unknown", FreeBytes: adminapi.Unknown,
		}
		for range p.state.LeasesOf(n.Name) {
			node.Leases++
		}
		for range p.state.RangesOf(n.Name) {
			node.Replicas++
		}
		for range p.state.CoordinatorsOf(n.Name) {
			node.CoordinatorSlots++
		}
		if v, ok := verdicts[n.Name]; ok {
			node.Alive, node.LastSeenMS, node.DiskState, node.FreeBytes = v.Alive, v.SilentMS, diskState(v), v.FreeBytes
		} else {
			node.Alive = p.locals[n.Name] != nil // nobody judges just now, but it answered
		}
		if l := p.locals[n.Name]; l != nil && l.Drills != nil {
			node.AllowsDrills, node.ReturnsBy = true, l.Drills.ReturnsBy
		}
		out = append(out, node)
	}
	return out
}

// verdicts are those of the Raft leader, by whom leases are given; empty if it did not answer.
func (p *picture) verdicts() map[vtop.NodeName]adminapi.LocalVerdict {
	out := map[vtop.NodeName]adminapi.LocalVerdict{}
	if p.judge != nil {
		for _, v := range p.judge.Verdicts {
			out[vtop.NodeName(v.Node)] = v
		}
	}
	return out
}

func raftRole(servers map[vtop.NodeName]meta.RaftServer, name, leader vtop.NodeName) string {
	s, ok := servers[name]
	switch {
	case !ok:
		return "none"
	case name == leader:
		return "leader"
	case s.Voter:
		return "voter"
	}
	return "nonvoter"
}

func diskState(v adminapi.LocalVerdict) string {
	switch {
	case v.DiskFailing:
		return "failed"
	case v.DiskStalledMS > 1000:
		return "stalled"
	case v.NoSpace:
		return "full"
	case !v.Alive:
		return "unknown"
	}
	return "ok"
}

// Status implements adminapi.Handler. Unlike the other calls it answers before the node is ready, as far as it can.
func (f *Face) Status(ctx context.Context) (*adminapi.Status, error) {
	n, err := f.attached()
	if err != nil {
		return nil, err
	}
	state := n.State()
	c := state.Cluster()
	leader, _ := n.RaftLeader()
	s := &adminapi.Status{
		ClusterID: clusterID(n), Generation: c.Generation, FeatureLevel: uint32(c.Level), Version: n.Version(), Node: string(n.Self()),
		Ready: true, RaftLeader: string(leader), RaftTerm: n.RaftTerm(), AppliedIndex: state.Index(), Health: "ok",
		Problems: []adminapi.Problem{}, Nodes: []adminapi.Node{}, PendingNodes: []adminapi.PendingNode{},
		LostReplicas: []adminapi.LostReplica{}, StalledDisks: []adminapi.StalledDisk{},
	}
	p, err := f.look(ctx, "")
	if err != nil {
		s.Ready, s.Reason, s.Health = false, strings.TrimPrefix(err.Error(), vtop.ErrNotReady.Error()+": "), "unavailable"
		return s, nil
	}
	s.Nodes = p.nodes()
	p.judgeNodes(s)
	p.judgeClaims(s)
	p.judgeRanges(s)
	p.judgeSlots(s)
	p.judgeRepairs(s)
	for name, local := range p.locals {
		for _, problem := range local.Problems {
			problem.Subject = fmt.Sprintf("%s on %s", problem.Subject, name)
			s.Problems = append(s.Problems, problem)
		}
	}
	s.Problems = append(s.Problems, p.refusals...)
	if leader == "" {
		s.Problems = append(s.Problems, adminapi.Problem{Kind: "no_raft_leader", Subject: "metadata", Message: "no Raft leader is known: leases can't move", Hint: "a majority of the Raft voters must run and reach one another"})
	}
	switch {
	case s.Counts.RangesServing < s.Counts.Ranges:
		s.Health = "unavailable"
	case len(s.Problems) > 0:
		s.Health = "degraded"
	}
	return s, nil
}

// clusterID is empty for a node that is in no cluster.
func clusterID(n *cluster.Node) string {
	if id, ok := n.ClusterID(); ok {
		return id.String()
	}
	return ""
}

func (p *picture) judgeNodes(s *adminapi.Status) {
	verdicts := p.verdicts()
	for _, n := range s.Nodes {
		if n.State == fsm.NodeGone.String() {
			continue
		}
		s.Counts.Nodes++
		if n.Alive {
			s.Counts.NodesAlive++
		}
		v, judged := verdicts[vtop.NodeName(n.Name)]
		problem := adminapi.Problem{Subject: n.Name, Message: v.Reason}
		switch {
		case judged && (v.DiskStalledMS > 1000 || v.DiskFailing):
			problem.Kind = "disk_stalled"
			if problem.Message == "" {
				problem.Message = fmt.Sprintf("storage stalled for %dms", v.DiskStalledMS)
			}
			problem.Hint = "it holds no lease until its disk answers again; look at the disk and the kernel log"
			s.StalledDisks = append(s.StalledDisks, adminapi.StalledDisk{Node: n.Name, StalledMS: v.DiskStalledMS, Reason: problem.Message})
		case judged && v.NoSpace:
			problem.Kind, problem.Hint = "disk_full", "free space: writes go on by themselves"
		case !n.Alive && p.locals[vtop.NodeName(n.Name)] != nil:
			problem.Kind = "node_unfit"
			problem.Hint = fmt.Sprintf("vtopd runs there and answers: look at its log, and whether the others reach it at %s (--peer-advertise)", n.PeerAddr)
		case !n.Alive:
			problem.Kind = "node_down"
			if problem.Message == "" {
				problem.Message = "does not answer"
			}
			problem.Hint = "start vtopd there; its replicas catch up by themselves"
		default:
			continue
		}
		s.Problems = append(s.Problems, problem)
	}
}

func (p *picture) judgeClaims(s *adminapi.Status) {
	for n := range p.state.Nodes() {
		for _, claim := range n.Pending {
			pending := adminapi.PendingNode{
				Name: string(n.Name), StorageID: claim.Storage.String(), HolderStorageID: n.Storage.String(), PeerAddr: claim.Addresses.Peer,
				Reason: fmt.Sprintf("claims the name since %s with another disk than the one registered; it votes nowhere", time.UnixMilli(claim.ClaimedAt).UTC().Format(time.RFC3339)),
				Hint:   fmt.Sprintf("if the old disk is gone for good: vtopctl node replace %s %s, or wait for --heal-after; else start the old one", n.Name, n.Name),
			}
			s.PendingNodes = append(s.PendingNodes, pending)
			s.Problems = append(s.Problems, adminapi.Problem{Kind: "node_pending", Subject: pending.Name, Message: pending.Reason, Hint: pending.Hint})
		}
	}
}

func (p *picture) judgeRanges(s *adminapi.Status) {
	for t := range p.state.Topics() {
		s.Counts.Topics++
		for r := range p.state.RangesOfTopic(t.ID) {
			s.Counts.Ranges++
			name := p.state.RangeName(r.ID)
			switch state, reason := p.stateOf(r, p.leader(r)); state {
			case "serving":
				s.Counts.RangesServing++
			case "unavailable":
				s.Counts.RangesUnavailable++
				s.Problems = append(s.Problems, adminapi.Problem{Kind: "range_unavailable", Subject: name, Message: reason, Hint: "vtopctl lease show " + name + " tells the whole story"})
			default:
				s.Counts.RangesPromoting++
			}
			for _, rep := range r.Replicas {
				if rep.Lost == "" {
					continue
				}
				s.LostReplicas = append(s.LostReplicas, adminapi.LostReplica{Topic: t.Name, Range: r.ID.Index, Node: string(rep.Node), ReplicaID: uint64(rep.ID), Reason: rep.Lost})
				s.Problems = append(s.Problems, adminapi.Problem{Kind: "replica_lost", Subject: name + " on " + string(rep.Node), Message: rep.Lost, Hint: "it votes no more and is rebuilt by itself while its node is alive; else: vtopctl repair " + name + " --node OTHER --replace " + string(rep.Node)})
			}
		}
	}
}

// judgeSlots names the coordinator slots that no living process holds, and how many groups wait for a coordinator.
func (p *picture) judgeSlots(s *adminapi.Status) {
	slots, groups := 0, 0
	for c := range p.state.Coordinators() {
		n, ok := p.state.Node(c.Holder)
		if ok && c.HeldBy(n.Name, n.Incarnation) && p.alive(n.Name) {
			continue
		}
		slots++
		for range p.state.GroupsOf(c.Slot) {
			groups++
		}
	}
	if slots > 0 {
		s.Problems = append(s.Problems, adminapi.Problem{
			Kind: "no_coordinator", Subject: "consumer groups", Message: fmt.Sprintf("%d of %d coordinator slots are held by no living node; groups that wait: %d", slots, fsm.GroupSlots, groups),
			Hint: "the Raft leader gives them within seconds to nodes that are active, answer and have free space: is there a leader, and such a node?",
		})
	}
}

// judgeRepairs names the repairs that do not move, and a pause that somebody may have forgotten.
func (p *picture) judgeRepairs(s *adminapi.Status) {
	for j := range p.state.Repairs() {
		if !j.Active() {
			continue
		}
		if r := describeRepair(j, p.alive); r.Waiting != "" {
			s.Problems = append(s.Problems, adminapi.Problem{
				Kind: "repair_stuck", Subject: fmt.Sprintf("repair %d of %s on %s", r.ID, r.Range, r.Destination), Message: r.Waiting,
				Hint: fmt.Sprintf("vtopctl repair status %d tells more; vtopctl repair cancel %d ends it", r.ID, r.ID),
			})
		}
	}
	if h := p.state.Heal(); h.Paused {
		s.Problems = append(s.Problems, adminapi.Problem{
			Kind: "heal_paused", Subject: "healing", Message: fmt.Sprintf("paused since %s: %s", time.UnixMilli(h.At).UTC().Format(time.RFC3339), h.Why),
			Hint: "vtopctl heal resume",
		})
	}
}
