package replica

import (
	"testing"
)

// A lease is granted to one node and, before it has started, to another. What the first one's promotion still has to say comes when that
// node follows already: it must not be told to be in promotion for ever, to people and to clients, which would wait for it (seen in chaos).
func TestPromotion_LateWordOfALeaseThatMoved(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "x")
	c.awaitSame("a", r)
	b := c.nodes["b"]
	s := b.engine.slotOf(r, false)
	role := func() Role {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.role
	}
	b.cutOff("a", "c")
	c.grant("b", r)
	c.await("b to be in promotion", func() bool { return role() == RolePromoting })
	granted := c.rangeOf(r)
	s.mu.Lock()
	late := s.promotion
	s.mu.Unlock()
	b.rejoin()
	for name, speak := range map[string]func(){
		"its reason": func() {
			b.engine.promoter.mu.Lock()
			defer b.engine.promoter.mu.Unlock()
			b.engine.promoter.explainLocked(late)
		},
		"the grant itself": func() {
			mine, _ := granted.On("b")
			b.engine.promoter.add(s, granted, mine)
			b.engine.dirty.add(r) // the applied state has moved since, and is looked at
		},
		"nothing": func() {},
	} {
		c.grant("c", r) // so that a's epoch is a new one each time
		c.lead("a", r)
		c.await("b to follow", func() bool { return role() == RoleFollowing })
		speak()
		c.nodes["a"].mustProduce(r, name)
		c.awaitSame("a", r)
		c.await("b to say that it follows, after "+name, func() bool { return role() == RoleFollowing })
	}
	// Case: nobody feeds it. It is idle, not in promotion.
	b.cutOff("a", "c")
	c.grant("b", r)
	c.await("b to be in promotion", func() bool { return role() == RolePromoting })
	c.nodes["c"].cutOff("a", "b")
	c.grant("c", r)
	c.await("b to be idle", func() bool { return role() == RoleIdle })
}
