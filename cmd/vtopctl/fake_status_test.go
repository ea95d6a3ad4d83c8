package main

import (
	"context"
	"time"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// Status: n1 has not caught up, n2 is in no cluster; or n1 is as it should be.
func (f *fakeNode) Status(context.Context) (*adminapi.Status, error) {
	s := &adminapi.Status{ClusterID: "7f0c", Node: "n1", Reason: "catching up with the metadata", Health: "unavailable"}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ready && f.index == 0 {
		s.Ready, s.Reason, s.Health = true, "", "ok"
	}
	if f.index == 1 {
		s.ClusterID, s.Node, s.Reason = "", "n2", "cluster is not born yet: no answer from 10.0.0.3:9640"
	}
	return s, nil
}

func (f *fakeNode) DeleteTopic(_ context.Context, name string) error {
	if name == "missing" {
		return adminapi.Errorf(adminapi.CodeNotFound, "there is no topic %q", name)
	}
	return nil
}

// StateHashes are the same, then n2's differs, then it does not answer.
func (f *fakeNode) StateHashes(context.Context) (*adminapi.StateHashes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hashes++
	n1 := adminapi.StateHash{Node: "n1", Index: 90, Hash: "aa01", Version: "v1", Verdict: adminapi.StateSame}
	n2 := n1
	n2.Node = "n2"
	switch f.hashes {
	case 2:
		n2.Hash, n2.Verdict, n2.Reason = "bb02", adminapi.StateDiffers, "it has another state than n1 at this index"
	case 3:
		n2 = adminapi.StateHash{Node: "n2", Index: adminapi.Unknown, Verdict: adminapi.StateUnknown, Reason: "connection refused"}
	}
	return &adminapi.StateHashes{Index: 90, Verdict: n2.Verdict, Nodes: []adminapi.StateHash{n1, n2}}, nil
}

func (f *fakeNode) LocalStateHash(context.Context, uint64, time.Duration) (*adminapi.StateHash, error) {
	return nil, adminapi.Errorf(adminapi.CodeInternal, "vtopctl asks a node for all of them")
}
