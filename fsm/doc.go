// Package fsm implements the replicated state machine: who may write what, since when, and up to where it is
// safe. Every node of the cluster holds the whole of it in memory.
//
// A Command is what Raft's log carries; applying one to a State gives the next State and an Outcome. State is
// immutable once published: readers take a pointer and walk it without locks. Machine puts the three together
// behind hashicorp/raft (only fsm.go and snapshot.go know that library) and keeps the LeaseView, the one place
// where a fence is checked and its effect takes place in the same critical section (I3, see docs/leases.md).
//
// Apply is pure: no clock, no randomness, no map order, no I/O. Times are stamped by the proposer, are shown to
// people, and decide nothing. A refusal is a result, equal on every node. A committed command that this build
// cannot read stops the node (see Fault): to skip it would be to diverge.
//
// The package does not decide anything: who is alive, where replicas go and when a lease moves are the cluster
// package's business. It only refuses what would break an invariant.
package fsm
