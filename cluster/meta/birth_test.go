package meta

import (
	"testing"
)

func seeds(short, long uint64) uint64 {
	if testing.Short() {
		return short
	}
	return long
}

// Whatever the order, with calls lost, power cut anywhere and one founder's disk lost at any time, all nodes
// end in one cluster, and it lives.
func TestBirth_OneClusterAndItLives(t *testing.T) {
	for seed := range seeds(50, 400) {
		n := newNursery(t, seed, "d e a b c", 3, 3)
		n.run(120, 1)
		first := n.nodes[0].meta.born.get().Cluster
		for _, k := range n.nodes {
			if c := k.meta.born.get().Cluster; c == "" || c != first {
				n.fail("seed %d: %s is of cluster %q, %s of %q: %s", seed, k.name, c, n.nodes[0].name, first, k.meta.Status())
			}
		}
		if c := n.alive(); len(c) != 1 || c[0] != first {
			n.fail("seed %d: living clusters %v, nodes are of %q", seed, c, first)
		}
	}
}

// The node with the lowest name is not among those of --join: it and the lowest of those both want to found.
func TestBirth_TwoCoordinators(t *testing.T) {
	for seed := range seeds(50, 300) {
		n := newNursery(t, seed, "a b c d e", 3, 3)
		n.anyDisk = true
		n.run(100, 1)
		first := n.nodes[0].meta.born.get().Cluster
		for _, k := range n.nodes {
			if c := k.meta.born.get().Cluster; c == "" || c != first {
				n.fail("seed %d: %s is of cluster %q, %s of %q: %s", seed, k.name, c, n.nodes[0].name, first, k.meta.Status())
			}
		}
	}
}

// Each node is told of the two others only, as people do who do not read.
func TestBirth_JoinNamesTheOthers(t *testing.T) {
	for seed := range seeds(50, 150) {
		n := newNursery(t, seed, "a b c d", 3, 3)
		n.join = []string{n.nodes[0].addr, n.nodes[1].addr, n.nodes[2].addr}
		for i, k := range n.nodes[:3] {
			for j, o := range n.nodes[:3] {
				if i != j {
					k.join = append(k.join, o.addr)
				}
			}
		}
		n.run(100, 0)
		for _, k := range n.nodes {
			if k.meta.born.get().Cluster == "" || len(n.alive()) != 1 {
				n.fail("seed %d: %s is of no cluster: %s", seed, k.name, k.meta.Status())
			}
		}
	}
}

// With any number of disks lost, all founders' included, there still are never two living clusters at a time.
func TestBirth_NeverTwoLivingClusters(t *testing.T) {
	for seed := range seeds(50, 400) {
		n := newNursery(t, seed, "b d a c e", 3, 3)
		n.run(150, 1<<30)
	}
}
