package main

import (
	"context"
	"time"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// The consumer groups of the fake cluster: billing with two members, idle without, and one with an odd name.

func (f *fakeCluster) Groups(context.Context) ([]adminapi.Group, error) {
	return []adminapi.Group{
		{Group: "billing", Kind: "consumer", State: "Stable", Epoch: 3, Members: 2, Offsets: 2, Coordinator: "n2", Slot: 12, CoordinatorEpoch: 4},
		{Group: "idle", Kind: "classic", State: "Empty", Epoch: 7, Offsets: 1, EmptySince: time.Unix(1, 0)},
		{Group: "evil\x1b[2J", Kind: "classic", State: "unknown"},
	}, nil
}

func (f *fakeCluster) Group(ctx context.Context, id string) (*adminapi.GroupDetail, error) {
	groups, _ := f.Groups(ctx)
	switch id {
	case "billing":
		return &adminapi.GroupDetail{
			Group: groups[0], AssignmentEpoch: 3, Protocol: "uniform",
			MembersDetail: []adminapi.GroupMember{
				{ID: "m1", ClientID: "app", ClientHost: "/10.0.0.1", Epoch: 3, Assigned: []string{"orders/0"}, Revoking: []string{"orders/1"}},
				{ID: "m2", InstanceID: "i2", ClientID: "app", ClientHost: "/10.0.0.2", Epoch: 3, Assigned: []string{}},
			},
			CommittedDetail: []adminapi.GroupOffset{
				{Topic: "orders", Range: 0, Offset: 90, HighWatermark: 100, Lag: 10, Member: "m1", CommittedAt: time.Unix(60, 0)},
				{Topic: "orders", Range: 1, Offset: 5, HighWatermark: adminapi.Unknown, Lag: adminapi.Unknown, CommittedAt: time.Unix(60, 0)},
			},
		}, nil
	case "idle", "..":
		return &adminapi.GroupDetail{Group: groups[1]}, nil
	}
	return nil, adminapi.Errorf(adminapi.CodeNotFound, "there is no group %q", id).WithHint("vtopctl group list shows the groups")
}

func (f *fakeCluster) DeleteGroup(ctx context.Context, id, _ string) error {
	g, err := f.Group(ctx, id)
	if err == nil && g.Members > 0 {
		err = adminapi.Errorf(adminapi.CodeConflict, "group %q has %d members", id, g.Members).WithHint("stop its members first")
	}
	return err
}

func (f *fakeCluster) ResetOffsets(ctx context.Context, req adminapi.ResetOffsets, at string) ([]adminapi.OffsetReset, error) {
	if err := f.DeleteGroup(ctx, req.Group, at); err != nil {
		return nil, err
	}
	after := map[string]int64{adminapi.ToEarliest: 0, adminapi.ToLatest: 100, adminapi.ToOffset: req.Offset, adminapi.ToTime: req.Time.UnixMilli()}[req.To]
	if req.Range != adminapi.AllRanges {
		return []adminapi.OffsetReset{{Topic: req.Topic, Range: req.Range, Before: adminapi.Unknown, After: after}}, nil
	}
	return []adminapi.OffsetReset{{Topic: req.Topic, Before: 90, After: after}, {Topic: req.Topic, Range: 1, Before: adminapi.Unknown, After: after}}, nil
}

func (f *fakeCluster) LocalGroups(context.Context) ([]adminapi.LocalGroup, error) { return nil, nil }

func (f *fakeCluster) LocalOffsets(context.Context, string, int64) ([]adminapi.LocalOffset, error) {
	return nil, nil
}
