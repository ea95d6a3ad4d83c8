// Package liveness tells who is alive. Every node sends a beat to every Raft voter, so that a new Raft leader
// already knows; the Raft leader's Tracker turns beats, lost connections and refused dials into verdicts.
//
// A verdict may be wrong: being wrong costs an epoch, never data. What a holder may do is decided elsewhere,
// by the applied state and by its own deadline: a beat that the Raft leader acknowledged after it verified its
// own leadership extends the deadline by the lease time, counted from when the beat was sent. A holder that
// hears no such answer stops serving by its own monotonic clock (I7), whatever anyone thinks of it.
//
// Disk is the watchdog: it times a small write and fsync over and over. A node whose disk has hung says so in
// its beats and loses its leases; if the hang lasts, the process ends itself, since nothing else ends a Raft
// leader whose disk never answers.
package liveness
