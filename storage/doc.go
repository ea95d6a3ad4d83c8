// Package storage implements one node's segment store: the logs of all replicas that the node holds, its
// identity, and its promises.
//
// A Store owns one data directory. It opens under an exclusive lock, counts its incarnation up, reads the journal
// of promises and durable marks, and recovers every replica. A Log is one replica of one range: AppendLead and
// AppendFollow put batches into a bounded buffer in memory, a flusher that runs only while there is work writes
// and syncs them, Read serves them. Every change of a log is checked against the lease inside the critical section
// in which it takes effect, through the Fence that the caller brings (I3), and nothing that is done inside touches
// a disk (I4).
//
// For repair a store lends and takes sealed segments. Pin holds those of a log open and OpenSealed reads them for a peer;
// Stage is where those of another node arrive, Adopt makes them a replica in one step, ReplaceSegment fills a hole of
// one; Scrub looks for holes.
//
// Locks, in the order in which they are taken: Log.opMu (structural changes; held across I/O), the lease cell
// (Fence.Hold), Log.mu (the append lock; memory only), then the small locks of the store. Before Log.opMu come
// Store.createMu and Store.stageMu; after it a staged segment's io, and then its staging's mu. The journal's lock is held
// across its sync and comes before Log.mu. The flusher holds none of them while it writes or syncs.
//
// The package does not know the state machine, the network, or what a majority is. It starts no repair: it says
// which bytes are damaged, and why. The bytes on disk are drawn in docs/format.md; what is believed of disks is in
// docs/assumptions.md.
package storage
