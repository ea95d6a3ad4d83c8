package group

import (
	"cmp"
	"slices"

	"github.com/vtop-log/vtop"
)

// assignMixed is the uniform assignor for members with different subscriptions. It keeps what the members have, gives the
// rest to whoever has least, and then passes ranges along chains of members (a gives one of a topic of b to b, b one of
// another to c) as long as a chain ends at a member with two ranges fewer than its start. When no such chain is
// left, no other assignment is more even: these are the augmenting paths of a semi-matching.
func assignMixed(members []assignMember) [][]vtop.Range {
	m := &assignGraph{members: members, out: make([][]vtop.Range, len(members))}
	m.topics, m.subscribers = assignSubscribers(members)
	taken := assignKeep(members, m.out, m.topics)
	m.count = make([]map[vtop.TopicID]int, len(members))
	for i, ranges := range m.out {
		m.count[i] = map[vtop.TopicID]int{}
		for _, r := range ranges {
			m.count[i][r.Topic]++
		}
	}
	free := assignFree(m.topics, taken)
	// The fewer may have a range, the earlier it is given: the others find their level after it.
	slices.SortStableFunc(free, func(a, b vtop.Range) int {
		return cmp.Compare(len(m.subscribers[a.Topic]), len(m.subscribers[b.Topic]))
	})
	for _, r := range free {
		m.give(m.least(m.subscribers[r.Topic]), r)
	}
	m.level()
	return m.out
}

// assignGraph is the work of assignMixed.
type assignGraph struct {
	members     []assignMember
	topics      []assignTopic
	subscribers map[vtop.TopicID][]int
	out         [][]vtop.Range
	// count is how many ranges of a topic a member has.
	count []map[vtop.TopicID]int
}

func (g *assignGraph) give(to int, r vtop.Range) {
	g.out[to] = append(g.out[to], r)
	g.count[to][r.Topic]++
}

func (g *assignGraph) least(of []int) int {
	best := of[0]
	for _, i := range of[1:] {
		if len(g.out[i]) < len(g.out[best]) {
			best = i
		}
	}
	return best
}

// level passes ranges on until no member can get rid of one in favour of a member with two fewer. Each pass lowers the sum
// of the squares of the counts, so it ends.
func (g *assignGraph) level() {
	order := make([]int, len(g.members))
	for i := range order {
		order[i] = i
	}
	for moved := true; moved; {
		moved = false
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(g.out[b]), len(g.out[a])) })
		settled := make([]bool, len(g.members))
		for _, from := range order {
			for !settled[from] && g.relieve(from, settled) {
				moved = true
			}
		}
	}
}

// assignStep is how a member was reached: by a range of topic from member from.
type assignStep struct {
	from  int
	topic vtop.TopicID
}

// relieve passes one range on from a member, along the shortest chain to one with at least two fewer; false if there is none.
// Then none of those reached can be relieved either, and they are marked as settled: whoever had more than from was asked before it.
func (g *assignGraph) relieve(from int, settled []bool) bool {
	reached := map[int]assignStep{from: {from: -1}}
	asked := map[vtop.TopicID]bool{}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, t := range g.members[at].topics {
			if asked[t.id] || g.count[at][t.id] == 0 {
				continue
			}
			asked[t.id] = true
			for _, to := range g.subscribers[t.id] {
				if _, seen := reached[to]; seen {
					continue
				}
				reached[to] = assignStep{at, t.id}
				if len(g.out[to]) <= len(g.out[from])-2 {
					g.pass(to, reached)
					return true
				}
				queue = append(queue, to)
			}
		}
	}
	for at := range reached {
		settled[at] = true
	}
	return false
}

// pass moves one range along each step of the chain that ends at to.
func (g *assignGraph) pass(to int, reached map[int]assignStep) {
	for step := reached[to]; step.from >= 0; step = reached[to] {
		from := step.from
		// The last one of the topic: what came last goes first, so what was owned before stays longest.
		at := len(g.out[from]) - 1
		for g.out[from][at].Topic != step.topic {
			at--
		}
		r := g.out[from][at]
		g.out[from] = slices.Delete(g.out[from], at, at+1)
		g.count[from][r.Topic]--
		g.give(to, r)
		to = from
	}
}
