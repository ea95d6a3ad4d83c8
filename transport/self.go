package transport

import (
	"context"
	"fmt"
	"net"

	"github.com/vtop-log/vtop"
)

// Self is who this node is now. It is told with every call and connection.
type Self struct {
	Name vtop.NodeName
	// Cluster is zero before the node belongs to a cluster. It is set, durably, before Raft starts: Raft and
	// stream connections are refused without it.
	Cluster vtop.ClusterID
	// Generation counts recoveries of a lost metadata quorum. Nodes of different generations do not mix.
	Generation uint64
	Storage    vtop.StorageID
	// Incarnation is 0 until it is known.
	Incarnation vtop.Incarnation
	// ServerID is the Raft server id; empty until raft.db exists.
	ServerID string
}

// Caller is who is at the other end, as it says itself; under TLS, Name is proven by its certificate.
type Caller struct {
	Self
	// Addr is where the connection comes from. It is not an address to dial.
	Addr string
	// Proven reports whether Name was proven by a certificate.
	Proven bool
}

// Target is whom a call is for.
type Target struct {
	// Name may be empty while only an address is known; then any node may answer.
	Name vtop.NodeName
	// Addr is host:port of the peer port.
	Addr string
}

// String names the target for error texts.
func (t Target) String() string {
	if t.Name == "" {
		return t.Addr
	}
	return fmt.Sprintf("node %q at %s", t.Name, t.Addr)
}

// NetDialer opens TCP connections; *net.Dialer is one. Tests put faults here.
type NetDialer interface {
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
}

// fits says whether a caller may speak to self, and names both sides if not. Calls for which needCluster is
// false work while either side has no cluster yet.
func fits(self Self, from Caller, to vtop.NodeName, needCluster bool) error {
	known := !from.Cluster.IsZero() && !self.Cluster.IsZero()
	switch {
	case from.Name == "":
		return refusef(ErrInvalid, "caller at %s does not say its name", from.Addr)
	case known && from.Cluster != self.Cluster:
		return refusef(ErrWrongCluster, "node %q at %s is of cluster %s, node %q is of cluster %s: check --join and recycled addresses",
			from.Name, from.Addr, from.Cluster, self.Name, self.Cluster)
	case known && from.Generation != self.Generation:
		return refusef(ErrWrongGeneration, "node %q at %s is of generation %d, node %q of generation %d of cluster %s: the metadata was recovered, see docs/operations.md",
			from.Name, from.Addr, from.Generation, self.Name, self.Generation, self.Cluster)
	case to != "" && to != self.Name:
		return refusef(ErrWrongNode, "node %q at %s wants node %q, this is node %q: its address list is out of date",
			from.Name, from.Addr, to, self.Name)
	case !known && needCluster:
		return refusef(vtop.ErrNotReady, "node %q (cluster %s) and node %q (cluster %s): wait until both have joined",
			from.Name, clusterText(from.Cluster), self.Name, clusterText(self.Cluster))
	}
	return nil
}

func clusterText(id vtop.ClusterID) string {
	if id.IsZero() {
		return "none yet"
	}
	return id.String()
}
