package inspect

import (
	"context"
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/placement"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// SafeToStop implements adminapi.NodeHandler.
func (f *Face) SafeToStop(ctx context.Context, node string) (*adminapi.SafeToStop, error) {
	p, err := f.look(ctx, "")
	if err != nil {
		return nil, err
	}
	return p.safeToStop(node)
}

func (p *picture) safeToStop(node string) (*adminapi.SafeToStop, error) {
	name := vtop.NodeName(node)
	if n, ok := p.state.Node(name); !ok || n.State == fsm.NodeGone {
		return nil, noNode(node)
	}
	quorums := []placement.Quorum{p.metadataQuorum()}
	for r := range p.state.RangesOf(name) {
		quorums = append(quorums, p.quorumOf(r))
	}
	reasons, unknown := placement.SafeToStop(name, quorums)
	out := &adminapi.SafeToStop{
		Node: node, Safe: len(reasons)+len(unknown) == 0,
		Reasons: obstacles(reasons, "bring the other voters back, or wait until they have caught up"), Unknown: obstacles(unknown, "ask again; vtopctl status tells who does not answer"),
	}
	if _, ok := p.node.RaftLeader(); !ok {
		out.Safe = false
		out.Unknown = append(out.Unknown, adminapi.Reason{Subject: "metadata", Message: "no Raft leader is known", Hint: "a majority of the Raft voters must run and reach one another"})
	}
	return out, nil
}

func obstacles(in []placement.Obstacle, hint string) []adminapi.Reason {
	out := []adminapi.Reason{}
	for _, o := range in {
		out = append(out, adminapi.Reason{Subject: o.Subject, Message: o.Message, Hint: hint})
	}
	return out
}

// metadataQuorum are the Raft voters. One is fit if the Raft leader hears it and it answered just now, caught up.
func (p *picture) metadataQuorum() placement.Quorum {
	q := placement.Quorum{Subject: "metadata"}
	for _, s := range p.node.RaftServers() {
		if !s.Voter {
			continue
		}
		m := placement.Member{Node: s.Name}
		switch v, judged := p.verdicts()[s.Name]; {
		case judged && !v.Alive:
			m.Why = v.Reason
		case p.locals[s.Name] == nil:
			m.Unknown, m.Why = true, "does not answer"
		default:
			m.Fit = true
		}
		q.Voters = append(q.Voters, m)
	}
	return q
}

// quorumOf are the voters of a range, as its leader sees them.
func (p *picture) quorumOf(r *fsm.Range) placement.Quorum {
	q := placement.Quorum{Subject: p.state.RangeName(r.ID)}
	leader := p.leader(r)
	for _, rep := range r.Voters() {
		q.Voters = append(q.Voters, p.voter(r, rep, leader))
	}
	return q
}

// voter is fit if it can vote, lives, is whole as far as its node knows, and follows with everything durable that was committed when
// the floor was last reported: about a second ago, so that a follower of a busy leader counts, and one that has just come back does not.
func (p *picture) voter(r *fsm.Range, rep fsm.Replica, leader *adminapi.LocalRange) placement.Member {
	m := placement.Member{Node: rep.Node}
	verdict, judged := p.verdicts()[rep.Node]
	damage, ailing := p.damage(rep.Node, r), p.ailing(rep.Node, r)
	switch {
	case rep.Lost != "":
		m.Why = "lost: " + rep.Lost
		return m
	case judged && !verdict.Alive:
		m.Why = verdict.Reason
		return m
	case damage != "":
		m.Why = "is damaged: " + damage
		return m
	case ailing != "":
		m.Why = ailing
		return m
	case leader == nil:
		m.Unknown, m.Why = true, "the range's leader does not answer"
		return m
	case leader.Role != "leading":
		m.Why = "the range has no leader that serves: " + leader.Role
		return m
	case uint64(rep.ID) == leader.ReplicaID:
		m.Fit = true
		return m
	}
	m.Unknown, m.Why = true, "its leader does not tell of it"
	for _, fl := range leader.Followers {
		if fl.ReplicaID != uint64(rep.ID) {
			continue
		}
		m.Unknown = false
		switch behind := int64(r.Floor) - fl.DurableEnd; {
		case fl.State != "following":
			m.Why = fmt.Sprintf("is %s, not following", fl.State)
		case fl.DurableEnd == adminapi.Unknown:
			m.Unknown, m.Why = true, "its position is not known"
		case behind > 0:
			m.Why = fmt.Sprintf("is %d behind the floor", behind)
		default:
			m.Fit, m.Why = true, ""
		}
	}
	return m
}
