package fsm

import (
	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// Repair jobs as protobuf messages, each way.

func putRepairRequest(q RepairRequest) *fsmpb.RepairRequest {
	return &fsmpb.RepairRequest{
		Range: putRangeID(q.Range), Destination: string(q.Destination), Replace: string(q.Replace), SealTail: q.SealTail,
		Sources: putNodeNames(q.Sources), MaxRate: q.MaxRate, Origin: uint32(q.Origin), Reason: q.Reason, Holes: q.Holes, Config: q.Config,
	}
}

func (r *reader) repairRequest(p *fsmpb.RepairRequest) RepairRequest {
	return RepairRequest{
		Range: r.rangeID(p.GetRange()), Destination: vtop.NodeName(p.GetDestination()), Replace: vtop.NodeName(p.GetReplace()),
		SealTail: p.GetSealTail(), Sources: nodeNames(p.GetSources()), MaxRate: p.GetMaxRate(),
		Origin: RepairOrigin(r.small(p.GetOrigin())), Reason: p.GetReason(), Holes: p.GetHoles(), Config: p.GetConfig(),
	}
}

func putRepairProgress(g RepairProgress) *fsmpb.RepairProgress {
	return &fsmpb.RepairProgress{
		ReplicaId: uint64(g.Replica), Epoch: int32(g.Epoch), SealedEnd: int64(g.SealedEnd), RecordsSealed: g.RecordsSealed,
		Segments: g.Segments, BytesTotal: g.BytesTotal, BytesDone: g.BytesDone, BytesPerSecond: g.BytesPerSecond,
		ActiveSources: putNodeNames(g.ActiveSources),
		DroppedSources: mapSlice(g.DroppedSources, func(d DroppedSource) *fsmpb.RepairProgress_DroppedSource {
			return &fsmpb.RepairProgress_DroppedSource{Node: string(d.Node), Reason: d.Reason}
		}),
		LastError: g.LastError, Waiting: g.Waiting, Outcome: uint32(g.Outcome), Cause: g.Cause,
		LogEnd: int64(g.LogEnd), Floor: int64(g.Floor), Gap: g.Gap, Voter: g.Voter,
	}
}

func (r *reader) repairProgress(p *fsmpb.RepairProgress) RepairProgress {
	return RepairProgress{
		Replica: vtop.ReplicaID(p.GetReplicaId()), Epoch: vtop.Epoch(p.GetEpoch()), SealedEnd: vtop.Offset(p.GetSealedEnd()),
		RecordsSealed: p.GetRecordsSealed(), Segments: p.GetSegments(), BytesTotal: p.GetBytesTotal(), BytesDone: p.GetBytesDone(),
		BytesPerSecond: p.GetBytesPerSecond(), ActiveSources: nodeNames(p.GetActiveSources()),
		DroppedSources: mapSlice(p.GetDroppedSources(), func(d *fsmpb.RepairProgress_DroppedSource) DroppedSource {
			return DroppedSource{Node: vtop.NodeName(d.GetNode()), Reason: d.GetReason()}
		}),
		LastError: p.GetLastError(), Waiting: p.GetWaiting(), Outcome: RepairOutcome(r.small(p.GetOutcome())), Cause: p.GetCause(),
		LogEnd: vtop.Offset(p.GetLogEnd()), Floor: vtop.Offset(p.GetFloor()), Gap: p.GetGap(), Voter: p.GetVoter(),
	}
}

func putRepair(j *RepairJob) *fsmpb.RepairRecord {
	return &fsmpb.RepairRecord{
		Id: uint64(j.ID), Name: j.Name, Request: putRepairRequest(j.RepairRequest), Step: uint32(j.Step), StepVersion: j.StepVersion,
		Attempts: j.Attempts, Progress: putRepairProgress(j.RepairProgress), Created: j.Created, Ended: j.Ended,
		CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt,
	}
}

func (r *reader) repair(s *State, p *fsmpb.RepairRecord) {
	j := &RepairJob{
		ID: RepairID(p.GetId()), Name: p.GetName(), RepairRequest: r.repairRequest(p.GetRequest()),
		Step: RepairStep(r.small(p.GetStep())), StepVersion: p.GetStepVersion(), Attempts: p.GetAttempts(),
		RepairProgress: r.repairProgress(p.GetProgress()), Created: p.GetCreated(), Ended: p.GetEnded(),
		CreatedAt: p.GetCreatedAt(), UpdatedAt: p.GetUpdatedAt(),
	}
	if _, twice := s.Repair(j.ID); twice {
		r.fail("repair job %d twice", j.ID)
	}
	s.setRepair(j)
}
