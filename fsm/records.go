package fsm

import (
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// The objects of a state as records, each way.

func (s *State) putCluster() *fsmpb.ClusterRecord {
	return &fsmpb.ClusterRecord{
		Id: putUUID(s.cluster.ID), Level: uint32(s.cluster.Level), Generation: s.cluster.Generation, CreatedAt: s.cluster.CreatedAt,
		Index: s.index, LastBroker: int32(s.lastBroker), LastReplica: uint64(s.lastReplica),
		NextProducerId: s.nextProducerID, FirstEpoch: int32(s.firstEpoch), LastRepair: uint64(s.lastRepair),
		HealPaused: s.cluster.Heal.Paused, HealWhy: s.cluster.Heal.Why, HealIndex: s.cluster.Heal.Index, HealAt: s.cluster.Heal.At,
	}
}

func (r *reader) cluster(s *State, p *fsmpb.ClusterRecord) {
	s.cluster = Cluster{ID: r.uuid(p.GetId()), Level: Level(p.GetLevel()), Generation: p.GetGeneration(), CreatedAt: p.GetCreatedAt()}
	s.cluster.Heal = Heal{Paused: p.GetHealPaused(), Why: p.GetHealWhy(), Index: p.GetHealIndex(), At: p.GetHealAt()}
	s.lastRepair = RepairID(p.GetLastRepair())
	s.index = p.GetIndex()
	s.lastBroker, s.lastReplica = vtop.BrokerID(p.GetLastBroker()), vtop.ReplicaID(p.GetLastReplica())
	s.nextProducerID, s.firstEpoch = p.GetNextProducerId(), vtop.Epoch(p.GetFirstEpoch())
	if s.cluster.Level > LevelMax {
		r.err = &Fault{Index: s.index, Err: fmt.Errorf("feature level %d, this build understands up to %d", s.cluster.Level, LevelMax)}
	}
}

func putNode(n *Node) *fsmpb.NodeRecord {
	return &fsmpb.NodeRecord{
		Name: string(n.Name), Broker: int32(n.Broker), Identity: putIdentity(n.Identity), State: uint32(n.State),
		Pending: mapSlice(n.Pending, func(c Claim) *fsmpb.NodeRecord_Claim {
			return &fsmpb.NodeRecord_Claim{Identity: putIdentity(c.Identity), ClaimedAt: c.ClaimedAt}
		}),
		RegisteredAt: n.RegisteredAt,
	}
}

func (r *reader) node(s *State, p *fsmpb.NodeRecord) {
	_, twice := s.nodes.Set(&Node{
		Name: vtop.NodeName(p.GetName()), Broker: vtop.BrokerID(p.GetBroker()),
		Identity: r.identity(p.GetIdentity()), State: NodeState(r.small(p.GetState())),
		Pending: mapSlice(p.GetPending(), func(c *fsmpb.NodeRecord_Claim) Claim {
			return Claim{Identity: r.identity(c.GetIdentity()), ClaimedAt: c.GetClaimedAt()}
		}),
		RegisteredAt: p.GetRegisteredAt(),
	})
	if twice {
		r.fail("node %q twice", p.GetName())
	}
}

func putTopic(t *Topic) *fsmpb.TopicRecord {
	return &fsmpb.TopicRecord{
		Id: putUUID(t.ID), Name: t.Name, Config: putConfig(t.Config), ConfigVersion: t.ConfigVersion,
		Ranges: t.Ranges, CreatedAt: t.CreatedAt,
	}
}

func (r *reader) topic(s *State, p *fsmpb.TopicRecord) {
	t := &Topic{
		ID: r.uuid(p.GetId()), Name: p.GetName(), Config: r.config(p.GetConfig()), ConfigVersion: p.GetConfigVersion(),
		Ranges: p.GetRanges(), CreatedAt: p.GetCreatedAt(),
	}
	_, twice := s.topics.Set(t)
	if _, named := s.names.Set(t.Name, t.ID); twice || named {
		r.fail("topic %q (%s) twice", t.Name, t.ID)
	}
}

func putRange(g *Range) *fsmpb.RangeRecord {
	return &fsmpb.RangeRecord{
		Id: putRangeID(g.ID), Preferred: putNodeNames(g.Preferred), ConfigVersion: g.ConfigVersion,
		Replicas: mapSlice(g.Replicas, func(rep Replica) *fsmpb.RangeRecord_Replica {
			return &fsmpb.RangeRecord_Replica{Node: string(rep.Node), Id: uint64(rep.ID), Role: uint32(rep.Role), Lost: rep.Lost}
		}),
		Holder: string(g.Lease.Holder), Incarnation: uint64(g.Lease.Incarnation), Epoch: int32(g.Lease.Epoch), Started: g.Started,
		GrantIndex: g.GrantIndex, GrantedAt: g.GrantedAt, GrantReason: g.GrantReason, LastEpoch: int32(g.LastEpoch),
		Epochs: mapSlice(g.Epochs, func(e vtop.EpochStart) *fsmpb.RangeRecord_EpochStart {
			return &fsmpb.RangeRecord_EpochStart{Epoch: int32(e.Epoch), Start: int64(e.Start)}
		}),
		Floor: int64(g.Floor), LogStart: int64(g.LogStart), SettleMark: int64(g.SettleMark),
		QuorumPosition: int64(g.QuorumPosition), LogEnd: int64(g.LogEnd), CatalogueEnd: int64(g.CatalogueEnd),
		Changes: mapSlice(g.Changes, func(c LeaseChange) *fsmpb.RangeRecord_LeaseChange {
			return &fsmpb.RangeRecord_LeaseChange{
				Event: uint32(c.Event), Epoch: int32(c.Epoch), Holder: string(c.Holder), Incarnation: uint64(c.Incarnation),
				Reason: c.Reason, Index: c.Index, At: c.At,
			}
		}),
		Losses: mapSlice(g.Losses, func(l Loss) *fsmpb.RangeRecord_Loss {
			return &fsmpb.RangeRecord_Loss{Node: string(l.Replica.Node), ReplicaId: uint64(l.Replica.ID), Reason: l.Reason, Index: l.Index, At: l.At}
		}),
		LostOffsets: mapSlice(g.LostOffsets, putLostOffsets),
	}
}

func (r *reader) rangeRecord(s *State, p *fsmpb.RangeRecord) {
	id := r.rangeID(p.GetId())
	g := &Range{
		ID: id, Preferred: nodeNames(p.GetPreferred()), ConfigVersion: p.GetConfigVersion(),
		Replicas: mapSlice(p.GetReplicas(), r.replica),
		Started:  p.GetStarted(), GrantIndex: p.GetGrantIndex(), GrantedAt: p.GetGrantedAt(), GrantReason: p.GetGrantReason(),
		LastEpoch: vtop.Epoch(p.GetLastEpoch()),
		Epochs: mapSlice(p.GetEpochs(), func(e *fsmpb.RangeRecord_EpochStart) vtop.EpochStart {
			return vtop.EpochStart{Epoch: vtop.Epoch(e.GetEpoch()), Start: vtop.Offset(e.GetStart())}
		}),
		Floor: vtop.Offset(p.GetFloor()), LogStart: vtop.Offset(p.GetLogStart()), SettleMark: vtop.Offset(p.GetSettleMark()),
		QuorumPosition: vtop.Offset(p.GetQuorumPosition()), LogEnd: vtop.Offset(p.GetLogEnd()), CatalogueEnd: vtop.Offset(p.GetCatalogueEnd()),
		Changes:     mapSlice(p.GetChanges(), r.leaseChange),
		Losses:      mapSlice(p.GetLosses(), r.loss),
		LostOffsets: mapSlice(p.GetLostOffsets(), r.lostOffsets),
	}
	if p.GetHolder() != "" {
		g.Lease = vtop.Lease{
			Range: id, Holder: vtop.NodeName(p.GetHolder()), Incarnation: vtop.Incarnation(p.GetIncarnation()), Epoch: vtop.Epoch(p.GetEpoch()),
		}
	}
	if _, twice := s.ranges.Set(g); twice {
		r.fail("range %s twice", id)
	}
	for _, rep := range g.Replicas {
		s.held.Set(nodeReplica{rep.Node, id, rep.ID})
	}
}

func (r *reader) replica(p *fsmpb.RangeRecord_Replica) Replica {
	return Replica{
		Replica: vtop.Replica{Node: vtop.NodeName(p.GetNode()), ID: vtop.ReplicaID(p.GetId())},
		Role:    Role(r.small(p.GetRole())), Lost: p.GetLost(),
	}
}

func (r *reader) leaseChange(p *fsmpb.RangeRecord_LeaseChange) LeaseChange {
	return LeaseChange{
		Event: LeaseEvent(r.small(p.GetEvent())), Epoch: vtop.Epoch(p.GetEpoch()), Holder: vtop.NodeName(p.GetHolder()),
		Incarnation: vtop.Incarnation(p.GetIncarnation()), Reason: p.GetReason(), Index: p.GetIndex(), At: p.GetAt(),
	}
}

func (r *reader) loss(p *fsmpb.RangeRecord_Loss) Loss {
	return Loss{
		Replica: vtop.Replica{Node: vtop.NodeName(p.GetNode()), ID: vtop.ReplicaID(p.GetReplicaId())},
		Reason:  p.GetReason(), Index: p.GetIndex(), At: p.GetAt(),
	}
}

func putLostOffsets(l LostOffsets) *fsmpb.RangeRecord_LostOffsets {
	return &fsmpb.RangeRecord_LostOffsets{
		From: int64(l.From), To: int64(l.To), Epoch: int32(l.Epoch), Node: string(l.Kept.Node), ReplicaId: uint64(l.Kept.ID),
		Floor: int64(l.Floor), Reason: l.Reason, Index: l.Index, At: l.At,
	}
}

func (r *reader) lostOffsets(p *fsmpb.RangeRecord_LostOffsets) LostOffsets {
	return LostOffsets{
		From: vtop.Offset(p.GetFrom()), To: vtop.Offset(p.GetTo()), Epoch: vtop.Epoch(p.GetEpoch()),
		Kept:  vtop.Replica{Node: vtop.NodeName(p.GetNode()), ID: vtop.ReplicaID(p.GetReplicaId())},
		Floor: vtop.Offset(p.GetFloor()), Reason: p.GetReason(), Index: p.GetIndex(), At: p.GetAt(),
	}
}

func putSegment(s *Segment) *fsmpb.SegmentRecord {
	return &fsmpb.SegmentRecord{
		Range: putRangeID(s.Range), Base: int64(s.Base), End: int64(s.End), Bytes: s.Bytes,
		Root: s.Root[:], Epoch: int32(s.Epoch), SealedAt: s.SealedAt,
	}
}

func (r *reader) segment(s *State, p *fsmpb.SegmentRecord) {
	_, twice := s.segments.Set(&Segment{
		Range: r.rangeID(p.GetRange()), Base: vtop.Offset(p.GetBase()), End: vtop.Offset(p.GetEnd()), Bytes: p.GetBytes(),
		Root: r.root(p.GetRoot()), Epoch: vtop.Epoch(p.GetEpoch()), SealedAt: p.GetSealedAt(),
	})
	if twice {
		r.fail("segment %d twice", p.GetBase())
	}
}

func putTombstone(t *Tombstone) *fsmpb.TombstoneRecord {
	return &fsmpb.TombstoneRecord{Topic: putUUID(t.Topic), Name: t.Name, Index: t.Index, DeletedAt: t.DeletedAt}
}

func (r *reader) tombstone(s *State, p *fsmpb.TombstoneRecord) {
	t := &Tombstone{Topic: r.uuid(p.GetTopic()), Name: p.GetName(), Index: p.GetIndex(), DeletedAt: p.GetDeletedAt()}
	_, twice := s.tombstones.Set(t)
	if _, same := s.burials.Set(t.Index, t.Topic); twice || same {
		r.fail("tombstone %s (index %d) twice", t.Topic, t.Index)
	}
}
