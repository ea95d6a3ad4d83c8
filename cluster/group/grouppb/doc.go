// Package grouppb holds the protobuf messages of what a coordinator keeps of the members of consumer groups, inside fields
// that the state machine does not read. Only package group uses it; group.proto is the source, tools/generate.sh writes
// group.pb.go from it.
package grouppb

//go:generate ../../../tools/generate.sh
