// Package meta implements one node's place in the metadata quorum: its Raft server, its birth or its joining,
// its gossip, and the road of a proposal to the Raft leader and back.
//
// Meta is the type that matters. Open starts Raft if the node has state for it, and a loop that does the rest:
// an empty node asks the addresses it was told of who is there, pledges itself to one birth (pledge.go, birth.go)
// or joins the cluster it finds (join.go). Once in a cluster, every node serves Propose, ReadIndex and the
// peers' questions (handle.go); the Raft leader also keeps the Raft configuration in line with the nodes that the
// state machine knows (reconcile.go), one change at a time.
//
// What is lost takes its identity with it: the Raft server id is made with raft.db and kept inside it, so a node
// whose raft.db was removed is a new server, never an empty old one. Members are ids; addresses are looked up
// (peers.go). Gossip (gossip.go) finds addresses and gives hints; no right ever comes from it.
//
// The package decides nothing about leases, replicas or placement. It does not exit the process: a disk that
// hangs under Raft is shown by LogStall, and the owner of the process acts on it.
package meta
