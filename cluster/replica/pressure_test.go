package replica

import "testing"

// L3: a node says that it has clients while something is written for them, its own or another leader's, and that it has none
// soon after the last of them.
func TestPressure_ClientsAreTold(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a, b := c.nodes["a"], c.nodes["b"]
	for _, n := range []*node{a, b} {
		c.await("pressure beside a client", func() bool {
			a.mustProduce(r, "x")
			return n.engine.Pressure() >= pressureActive
		})
	}
	for _, n := range []*node{a, b} {
		c.await("no pressure without one", func() bool { return n.engine.Pressure() == 0 })
	}
}
