// Package protocol implements the pure core of replication: who may promise, who may lead, what is committed,
// when a replica may accept, and when the set of voters may change. docs/protocol.md has the argument and the
// invariants I1 to I13 that the comments here name.
//
// It holds small values and pure functions: no goroutine, clock, disk, network or log. cluster/replica drives
// them with real ones; the explorer in the tests of this package drives the same functions through every order
// of messages, crashes and lags that its bounds allow.
//
// The parts hand over to one another in the order of a lease's life. Fence decides whether a voter may promise an
// epoch. Reconcile says what of a log is real under the epoch table. Promotion chooses from the voters' answers.
// Leading is the leader's book for its epoch: acknowledgements, high watermark, quorum position and the change of
// voters in flight. Follow decides what a follower accepts. Plan proposes the next change of voters.
//
// Replicas are counted by replica id, never by node name (I10).
package protocol
