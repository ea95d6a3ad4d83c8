package fsm

import (
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
)

// A check that cannot fail is none: each invariant is broken once, by hand.
func TestState_CheckSeesEveryBreach(t *testing.T) {
	good := richState(t)
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	edit := func(change func(r *Range)) func(*State) {
		return func(s *State) {
			old, _ := s.Range(r0)
			r := old.clone()
			r.Replicas, r.Epochs = slices.Clone(r.Replicas), slices.Clone(r.Epochs)
			change(r)
			s.ranges.Set(r)
		}
	}
	node := func(change func(n *Node)) func(*State) {
		return func(s *State) {
			old, _ := s.Node("n3")
			n := *old
			change(&n)
			s.nodes.Set(&n)
		}
	}
	n1, _ := good.Node("n1")
	r1 := rangeID(1, 1)
	for name, c := range map[string]struct {
		breach func(*State)
		want   string
	}{
		"two nodes share a broker id": {node(func(n *Node) { n.Broker = 1 }), "share broker id"},
		"a broker id never minted":    {node(func(n *Node) { n.Broker = 99 }), "not in 1…"},
		"two nodes share a disk":      {node(func(n *Node) { n.Storage = n1.Storage }), "share data directory"},
		"two nodes share a raft id":   {node(func(n *Node) { n.RaftID = n1.RaftID }), "share raft id"},
		"a node without incarnation":  {node(func(n *Node) { n.Incarnation = 0 }), "incarnation 0"},
		"a replica on a gone node":    {node(func(n *Node) { n.State = NodeGone }), "unknown or gone"},
		"a name that leads elsewhere": {func(s *State) { s.names.Set("lines", uuid(9)) }, "the name leads to"},
		"a topic with a tombstone":    {func(s *State) { s.tombstones.Set(&Tombstone{Topic: uuid(1)}) }, "has a tombstone"},
		"a range that is missing":     {func(s *State) { s.ranges.Delete(&Range{ID: r1}) }, "1 ranges found"},
		"a range of no topic":         {func(s *State) { s.ranges.Set(&Range{ID: rangeID(8, 0)}) }, "3 ranges, 2 of topics"},
		"a replica id given twice": {func(s *State) {
			old, _ := s.Range(r1)
			r := old.clone()
			r.Replicas = slices.Clone(r.Replicas)
			r.Replicas[0].ID = 1
			s.ranges.Set(r)
		}, "I10: ranges"},
		"a replica id never minted":     {edit(func(r *Range) { r.Replicas[3].ID = 999 }), "last minted"},
		"no voter":                      {edit(func(r *Range) { r.Replicas = r.Replicas[3:] }), "configuration version"},
		"a role unknown":                {edit(func(r *Range) { r.Replicas[0].Role = 7 }), "role 7"},
		"two whole replicas on a node":  {edit(func(r *Range) { r.Replicas[1].Lost = "" }), "two replicas that are not lost"},
		"a history without end":         {edit(func(r *Range) { r.Losses = make([]Loss, MaxLosses+1) }), "I13: history"},
		"a lease of another range":      {edit(func(r *Range) { r.Lease.Range = r1 }), "I5: lease"},
		"a lease behind the last epoch": {edit(func(r *Range) { r.LastEpoch++ }), "I5: lease"},
		"a lost holder":                 {edit(func(r *Range) { r.Replicas[0].Lost = "x" }), "I10: holder"},
		"a lease started in secret":     {edit(func(r *Range) { r.Started = false }), "started false"},
		"started without a lease":       {edit(func(r *Range) { r.Lease = vtop.Lease{} }), "no lease, but"},
		"epochs that do not rise": {edit(func(r *Range) {
			r.Epochs = append(vtop.EpochTable{{Epoch: 1, Start: 3}}, r.Epochs...)
		}), "I8: epoch table entry"},
		"an epoch never minted": {edit(func(r *Range) { r.Epochs[0].Epoch = 9; r.Started = false; r.QuorumPosition = NoOffset }), "I8: epoch table entry"},
		"a table not trimmed": {edit(func(r *Range) {
			r.Epochs = vtop.EpochTable{{Epoch: 1, Start: 1}, {Epoch: 2, Start: 2}}
			r.LastEpoch, r.Lease.Epoch = 2, 2
		}), "I13: epoch table"},
		"a log start above the floor":         {edit(func(r *Range) { r.LogStart = r.Floor + 1 }), "I1: log start"},
		"a catalogue above the floor":         {edit(func(r *Range) { r.CatalogueEnd = r.Floor + 1 }), "I9: catalogue ends"},
		"a quorum beyond the log":             {edit(func(r *Range) { r.QuorumPosition = r.LogEnd + 1 }), "quorum position"},
		"a segment of no range":               {func(s *State) { s.segments.Set(&Segment{Range: rangeID(8, 0), End: 1}) }, "unknown range"},
		"an empty segment":                    {func(s *State) { s.segments.Set(&Segment{Range: r0, Base: 3, End: 3}) }, "I9: range"},
		"segments that do not meet":           {func(s *State) { s.segments.Set(&Segment{Range: r0, Base: 3, End: 9, Bytes: 1, Epoch: 1}) }, "after one that ends at"},
		"a catalogue cut short":               {func(s *State) { s.segments.Delete(&Segment{Range: r0, Base: 5}) }, "last segment ends"},
		"a replica not in the index":          {func(s *State) { s.held.PopMin() }, "not in the index"},
		"an index that lags":                  {func(s *State) { s.held.Set(nodeReplica{"n1", r0, 99}) }, "index of"},
		"a tombstone without burial":          {func(s *State) { s.tombstones.Set(&Tombstone{Topic: uuid(7)}) }, "tombstones"},
		"producer ids that went back":         {func(s *State) { s.nextProducerID = 0 }, "next producer id"},
		"a history of recoveries without end": {edit(func(r *Range) { r.LostOffsets = make([]LostOffsets, MaxLostOffsets+1) }), "I13: history"},
		"a loss that covers too little":       {edit(func(r *Range) { r.LostOffsets = []LostOffsets{{From: 1, To: 2, Floor: 3}} }), "lost offsets"},
	} {
		bad := good.fork()
		c.breach(bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
}

// The same for repair jobs: 1 is active, with a replica of its own; 2 failed; 3 is done.
func TestState_CheckSeesEveryBreachOfRepairs(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.submit(requestTo("n4"))
	w.adopt(1)
	w.submit(requestTo("n5"))
	w.step(2, RepairFailed, failed)
	holes := requestTo("n3")
	holes.Holes = true
	w.submit(holes)
	w.step(3, RepairDone, whole)
	good := w.s
	edit := func(id RepairID, change func(j *RepairJob)) func(*State) {
		return func(s *State) {
			old, _ := s.Repair(id)
			j := old.clone()
			change(j)
			s.repairs.Set(j)
		}
	}
	job := func(id RepairID) *RepairJob { j, _ := good.Repair(id); return j }
	for name, c := range map[string]struct {
		breach func(*State)
		want   string
	}{
		"an id never minted":             {func(s *State) { s.lastRepair = 2 }, "repair 3 of 2"},
		"a step unknown":                 {edit(2, func(j *RepairJob) { j.Step = 99 }), "step 99"},
		"no step version":                {edit(1, func(j *RepairJob) { j.StepVersion = 0 }), "version 0"},
		"attempts without end":           {edit(1, func(j *RepairJob) { j.Attempts = MaxRepairAttempts + 1 }), "attempts 101"},
		"sources without end":            {edit(2, func(j *RepairJob) { j.DroppedSources = make([]DroppedSource, MaxRepairSources+1) }), "I13: repair 2"},
		"an active job of no range":      {edit(1, func(j *RepairJob) { j.Range = rangeID(8, 0) }), "range known false"},
		"an active job to no node":       {edit(1, func(j *RepairJob) { j.Destination = "n9" }), "node known false"},
		"an active job that ended":       {edit(1, func(j *RepairJob) { j.Ended = 3 }), "ended at index 3"},
		"an active job with an outcome":  {edit(1, func(j *RepairJob) { j.Outcome = OutcomeWhole }), "outcome 1"},
		"another's replica":              {edit(1, func(j *RepairJob) { j.Replica = 1 }), "I10: works for replica 1"},
		"a replica that is not there":    {edit(1, func(j *RepairJob) { j.Replica = 99 }), "I10: works for replica 99"},
		"two active jobs of one kind":    {func(s *State) { s.lastRepair = 4; j := job(1).clone(); j.ID = 4; s.setRepair(j) }, "not the only active one"},
		"ended, nobody knows when":       {edit(2, func(j *RepairJob) { j.Ended = 0 }), "I12: repair 2"},
		"ended without an outcome":       {edit(2, func(j *RepairJob) { j.Outcome = OutcomeNone }), "I12: repair 2"},
		"failed and whole":               {edit(2, func(j *RepairJob) { j.Outcome = OutcomeWhole }), "I12: repair 2"},
		"whole without a vote":           {edit(3, func(j *RepairJob) { j.Voter = false }), "I12: repair 3"},
		"whole with a gap":               {edit(3, func(j *RepairJob) { j.Gap = 4 }), "I12: repair 3"},
		"an ended job out of the order":  {func(s *State) { s.ended.PopMin() }, "not in the order of endings"},
		"an active job out of the index": {func(s *State) { s.repairsTo.PopMin() }, "not in the index of"},
		"an index of ranges that lags":   {func(s *State) { s.repairing.Set(rangeRepair{r0, "n2", 9}) }, "2 by range"},
		"an index of nodes that lags":    {func(s *State) { s.repairsTo.Set(nodeRepair{"n2", 9}) }, "2 by node"},
		"an order of endings that lags":  {func(s *State) { s.ended.Set(endedRepair{1, 9}) }, "3 in order"},
		"more ended jobs than are kept":  {func(s *State) { fillEnded(s, MaxEndedRepairs) }, "I13: 1 active repairs, 1002 ended"},
		"a destination that is gone":     {func(s *State) { n, _ := s.Node("n4"); c := *n; c.State = NodeGone; s.nodes.Set(&c) }, "gone"},
		"a replica that may have forgotten": {func(s *State) {
			old, _ := s.Range(r0)
			r := old.clone()
			r.Replicas = slices.Clone(r.Replicas)
			r.Replicas[3].Lost = "x"
			s.ranges.Set(r)
		}, "I10: works for replica"},
	} {
		bad := good.fork()
		c.breach(bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
}

// fillEnded puts n more ended jobs into a state, past every rule.
func fillEnded(s *State, n int) {
	for range n {
		s.lastRepair++
		s.setRepair(&RepairJob{
			ID: s.lastRepair, Step: RepairCancelled, StepVersion: 1, Attempts: 1, Ended: 1, RepairProgress: RepairProgress{Outcome: OutcomeCancelled},
		})
	}
}

// Apply is pure because nothing that it is made of can be anything else: who may import what, file by file.
func TestImports_ApplyIsPure(t *testing.T) {
	only := map[string][]string{
		"github.com/hashicorp/raft":     {"fsm.go", "snapshot.go"},
		"github.com/hashicorp/go-hclog": {"machine.go"},
		"time":                          {"machine.go", "leaseview.go"},
		"sync":                          {"machine.go", "moment.go", "leaseview.go", "state.go"},
		"sync/atomic":                   {"machine.go", "moment.go", "leaseview.go"},
		"context":                       {"machine.go", "moment.go"},
		"io":                            {"encoding.go", "snapshot.go"},
		"bufio":                         {"encoding.go"},
		"os":                            nil,
		"net":                           nil,
		"math/rand":                     nil,
		"math/rand/v2":                  nil,
		"crypto/rand":                   nil,
		"runtime":                       nil,
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if allowed, ruled := only[path]; ruled && !slices.Contains(allowed, f.Name()) {
				t.Errorf("%s imports %s: only %v may", f.Name(), path, allowed)
			}
		}
	}
}
