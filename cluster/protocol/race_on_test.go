//go:build race

package protocol

// raceEnabled: the explorer has one goroutine for each test, so the race detector would only slow it down.
const raceEnabled = true
