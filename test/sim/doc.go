// Package sim implements a simulation of a whole cluster in one process, on virtual time, from one seed.
//
// A life is one run: some hosts with a process of vtop's own code on each (state machine, controller, liveness, replication,
// promotion, repair, and the store on vfs.CrashFS), clients that write and read, and a plan of faults. It runs in a bubble of
// testing/synctest, where time passes only when nobody has anything to do, so that half a minute of cluster costs some ten
// milliseconds. Simulated are the network (net.go, conn.go, call.go), the disks (disk.go) and the metadata log (ledger.go), which
// stands for hashicorp/raft; everything else is what runs in vtopd.
//
// The oracle watches what clients are told and what the metadata decides, while the life lasts, and compares all replicas at
// its end. docs/testing.md says what is checked, how far a seed repeats a life, and how to run one again.
package sim
