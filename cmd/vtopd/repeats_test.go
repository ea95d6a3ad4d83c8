package main

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestRepeats_OneLineAMinuteForEachPeerAndAllOthers(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRepeats(func() time.Time { return now })
	passes := func(msg string, args ...any) bool { return !r.exclude(hclog.Error, msg, args...) }
	if !passes("failed to heartbeat to", "peer", "a") || passes("failed to heartbeat to", "peer", "a") {
		t.Error("the first passes, the second does not")
	}
	if !passes("failed to heartbeat to", "peer", "b") || !passes("failed to appendEntries to", "peer", "a") {
		t.Error("another peer, or another line, is news")
	}
	for range 3 {
		if !passes("lease granted", "peer", "a") {
			t.Error("an ordinary line was dropped")
		}
	}
	now = now.Add(repeatEvery)
	if !passes("failed to heartbeat to", "peer", "a") {
		t.Error("still away after a minute: say so again")
	}
}
