// Package bench holds the benchmarks that run real vtopd processes: make bench. They print what they measured beside
// what the machine's disk and the client alone can do, in the same run; figures mean something only as ratios.
package bench
