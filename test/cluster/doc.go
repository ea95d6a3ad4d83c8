// Package cluster holds the tests that run real vtopd processes: make cluster-test. A step that the machine can't
// run (no loop device, no strace, no root) says so by its skip reason.
package cluster
