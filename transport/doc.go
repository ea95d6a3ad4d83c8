// Package transport carries bytes between nodes: everything that nodes say to one another goes over one TCP
// port, to which Listen binds.
//
// A Mux splits that port three ways, by ALPN under TLS and by the first eight bytes in plaintext. Raft
// connections come out of RaftLayer, which cluster/meta wraps as a raft.StreamLayer. Streams, for replication
// and heartbeats, are handed to the function registered with HandleStream. All else is HTTP/1.1 and reaches a
// Handler as plain method calls, sealed segments among it: resources that are read in ranges, by those on the
// transfer allowlist (Options.AllowTransfer, SegmentHandler, Client.FetchRange). The calling side is a Dialer, for the first two, and a Client.
//
// Every connection and every call says who speaks, from which cluster, generation and life, and whom it wants
// (Self, Caller, Target). The answering side refuses what does not fit and names both sides, so that two
// clusters never melt together. Under TLS the name must be the one in the peer's certificate (tlsid).
//
// Errors keep their identity: errors.Is with the sentinels of vtop and of this package works on both sides.
//
// This package does not know what the bytes mean: it keeps no state of ranges or leases, retries nothing and
// looks up no address. Lengths are checked against a cap, and memory grows with what arrived, not with what
// was announced.
package transport
