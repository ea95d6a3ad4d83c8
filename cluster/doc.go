// Package cluster puts one node together: the state machine, the segment store, the peer plane, the place in the
// Raft group, the replicas, the verdicts on other nodes and, on the Raft leader, the controller.
//
// Node is that whole. It starts the parts in the order in which they need each other and closes them in reverse:
//
//	machine   the applied state and the lease view; asked by the store under its append lock
//	store     one node's segments
//	mux       the peer port
//	meta      Raft, gossip, birth and joining            (cluster/meta)
//	engine    promotion, leading, following              (cluster/replica)
//	runner    the repair jobs to this node               (cluster/repair)
//	liveness  beats, verdicts, the disk's watchdog       (cluster/liveness)
//	controller grants, transfers, balance, healing       (cluster/controller)
//
// The client face (kafka) and the admin port stand on a Node; package cluster knows neither protocol.
package cluster
