// Package vtop is the vocabulary of the log: the names of things (Range, Epoch, Offset, Lease, ReplicaID),
// the epoch table that decides which records are real, and the errors that more than one package raises.
//
// It holds values only. It starts no goroutine, touches no disk, clock or network, and imports nothing but
// the standard library, so that fsm, storage and transport can meet here without knowing one another.
// The meaning of each word, and the invariants I1 to I13 that comments refer to, are in docs/protocol.md.
package vtop
