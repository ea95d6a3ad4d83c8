package group

import (
	"cmp"
	"slices"

	"github.com/vtop-log/vtop"
)

// assignEven is the uniform assignor for members that all subscribe to the same topics: nobody has two ranges more than
// another, and nobody loses a range that it could have kept.
func assignEven(members []assignMember) [][]vtop.Range {
	out := make([][]vtop.Range, len(members))
	if len(members) == 0 {
		return out
	}
	topics := members[0].topics
	total := 0
	for _, t := range topics {
		total += int(t.ranges)
	}
	taken := assignKeep(members, out, topics)
	base, longer := total/len(members), total%len(members)

	// Those who have most keep the odd ranges: it moves the fewest.
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(out[b]), len(out[a])) })
	quota := make([]int, len(members))
	for at, i := range order {
		quota[i] = base
		if at < longer {
			quota[i]++
		}
		if len(out[i]) > quota[i] {
			// By number first: what goes is then spread over all topics.
			slices.SortFunc(out[i], assignAcross)
			for _, r := range out[i][quota[i]:] {
				delete(taken, r)
			}
			out[i] = out[i][:quota[i]]
		}
	}
	at := 0
	for _, r := range assignFree(topics, taken) {
		for len(out[at]) >= quota[at] {
			at = (at + 1) % len(members)
		}
		out[at] = append(out[at], r)
		at = (at + 1) % len(members) // one each in turn: a topic does not end up with one member
	}
	return out
}

// assignAcross orders ranges by number, then by topic.
func assignAcross(a, b vtop.Range) int { return cmp.Or(cmp.Compare(a.Index, b.Index), a.Compare(b)) }

// assignKeep gives each member what it owns already, as far as it subscribes to it and it exists, and returns who has what.
func assignKeep(members []assignMember, out [][]vtop.Range, topics []assignTopic) map[vtop.Range]int {
	ranges := make(map[vtop.TopicID]int32, len(topics))
	for _, t := range topics {
		ranges[t.id] = t.ranges
	}
	taken := map[vtop.Range]int{}
	for i, m := range members {
		for _, r := range m.owned {
			_, twice := taken[r]
			if twice || r.Index < 0 || r.Index >= ranges[r.Topic] || !m.subscribes(r.Topic) {
				continue
			}
			taken[r] = i
			out[i] = append(out[i], r)
		}
	}
	return taken
}

func (m *assignMember) subscribes(id vtop.TopicID) bool {
	_, found := slices.BinarySearchFunc(m.topics, assignTopic{id: id}, assignTopic.compare)
	return found
}

// assignFree lists the ranges that nobody has, topic by topic.
func assignFree(topics []assignTopic, taken map[vtop.Range]int) []vtop.Range {
	var free []vtop.Range
	for _, t := range topics {
		for i := range t.ranges {
			r := vtop.Range{Topic: t.id, Index: i}
			if _, has := taken[r]; !has {
				free = append(free, r)
			}
		}
	}
	return free
}
