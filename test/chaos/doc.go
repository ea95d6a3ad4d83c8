// Package chaos strikes a cluster of real processes, each in a network namespace and on a disk of its own, from a seed, while
// producers, consumer groups and administrators work with it, and holds it after every round against the checks of
// docs/faults.md. See docs/chaos.md.
package chaos
