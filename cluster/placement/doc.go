// Package placement decides where replicas and leases go. It is pure: what it decides follows from what it is
// given, so that a decision can be tested and explained. The node that is Raft leader feeds it with the applied
// state and with what liveness says, and proposes what comes out; every proposal names the epoch it was decided
// on, so that a decision from an earlier time is refused by the state machine instead of carried out.
//
// Assign places the replicas of new ranges over racks and nodes. Plan gives leases whose holder is gone to live
// voters. Balance returns leases gently to the nodes that their ranges prefer. Home finds a node for one more replica of a
// range, SafeToStop says what would lose its majority without a node.
package placement
