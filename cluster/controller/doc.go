// Package controller is what the Raft leader does for all: it acknowledges beats, gives leases whose holder is gone
// to live voters, carries out transfers, and brings leases home. On every other node it waits.
//
// It decides nothing by itself: liveness says who is alive, placement chooses, the state machine has the last word,
// since every grant names the epoch that it was decided on. So a controller that was paused and wakes as a deposed
// leader can propose nothing that is still carried out.
package controller
