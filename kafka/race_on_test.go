//go:build race

package kafka

// raceEnabled: the race detector makes sync.Pool forget at random, and takes memory of its own.
const raceEnabled = true
