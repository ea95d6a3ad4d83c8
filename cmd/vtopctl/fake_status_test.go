package main

import (
	"context"

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
