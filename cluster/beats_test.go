package cluster

import (
	"testing"
	"time"

	"github.com/vtop-log/vtop/cluster/liveness"
)

// A node that was a Raft voter, heard beats as such, and is none any more hears no more beats of nodes that live: it must not take
// them for dead, or a repair that it runs finds no source, and its clients no other node, until it is started again.
func TestBelievedAlive_WhoVotesNoMoreCondemnsNobody(t *testing.T) {
	now := time.Duration(0)
	tracker := liveness.NewTracker(liveness.Limits{Silence: 3 * time.Second, DiskStall: 2 * time.Second}, func() time.Duration { return now })
	votes := true
	believed := func(self bool) bool {
		return believedAlive(tracker.Verdict("other"), self, func() bool { return votes })
	}
	tracker.Beat("other", 1, liveness.Health{Incarnation: 7})
	if !believed(false) {
		t.Fatal("a node that has just been heard of is taken for dead")
	}
	for range 60 {
		now += time.Second
		tracker.Now() // this process runs meanwhile
	}
	if believed(false) {
		t.Fatal("a voter takes a node that is silent for alive")
	}
	votes = false
	if !believed(false) {
		t.Error("who votes no more takes a node for dead that has no reason to send it beats")
	}
	if believed(true) {
		t.Error("a node takes itself for alive without a word of its own")
	}
}
