// Package fsmpb holds the protobuf messages of the state machine: the bytes of commands, snapshots and results.
// Only package fsm uses it; fsm.proto is the source, tools/generate.sh writes fsm.pb.go from it.
package fsmpb

//go:generate ../../tools/generate.sh
