// Package group implements the coordinator of Kafka's consumer groups: who is a member, who reads which range, and up
// to where a group has read.
//
// A Coordinator serves the groups of those slots (fsm.GroupSlot) whose lease its node holds in the applied state. All of
// a group happens under that group's lock, on memory, in a pure state machine: classicGroup for the protocol in which
// a member assigns (JoinGroup, SyncGroup), consumerGroup for the one in which the coordinator does (KIP-848). What must
// outlive the process leaves the machine as an fsm.GroupItem; the proposer gathers the items of all groups into few
// commands (UpdateGroups); and no answer that rests on an item goes out before the item is applied.
//
// So the state machine of the cluster always has what clients were told: a generation that was given out is never given
// out again, a member that got its assignment is known to the next coordinator, a commit that was acknowledged is
// there. The next coordinator takes the groups from the applied state and goes on with the same members and
// generation; only the session timers begin anew. If an item is refused (the coordinator was deposed), the group
// in memory is dropped, whoever waits gets a retriable error, and the applied state counts.
//
// The package knows neither connections nor encodings; package kafka does.
package group
