// Package replica implements the Engine of one node: it turns the applied metadata into replicas that promote,
// lead and follow, and moves record batches between them.
//
// An Engine holds one slot per range that the node has a replica of. The machine tells it which ranges changed;
// the engine's loop compares each with the applied state and moves the slot along its list of roles (roles.go).
// What waits for a disk or a peer runs elsewhere: slow steps in a small pool keyed by range (work.go), promotions in
// the promoter, which asks each peer once for a whole chunk of ranges (promote.go).
//
// A leadership (lead.go) is one epoch of one range: it admits batches, counts durable ends by replica id, moves the
// high watermark by the rules of package protocol, and completes what waits for it. It lives in a context that dies
// with the lease. A peer (peer.go) is the one connection from a leading node to a following one, whatever the number
// of ranges; a session (session.go) is its other end.
//
// The package decides nothing about who may lead: that is the metadata's. It never changes a log but through
// storage, which asks the fence inside its own critical section (I3).
package replica
