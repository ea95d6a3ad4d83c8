package group

import (
	"cmp"
	"slices"

	"github.com/vtop-log/vtop"
)

// The assignors that the coordinator offers to groups of the consumer protocol (KIP-848), the default first.
const (
	// AssignorUniform spreads ranges evenly over the members and moves as few of them as it can.
	AssignorUniform = "uniform"
	// AssignorRange gives each member a run of neighbouring ranges of each topic, so that members of topics with
	// equally many ranges get the same numbers of each.
	AssignorRange = "range"
)

// assignNames are the assignors in order of preference; it is never written to.
var assignNames = [...]string{AssignorUniform, AssignorRange}

// assignTopic is a topic as an assignor sees it.
type assignTopic struct {
	id     vtop.TopicID
	ranges int32
}

func (t assignTopic) compare(o assignTopic) int {
	return vtop.Range{Topic: t.id}.Compare(vtop.Range{Topic: o.id})
}

// assignMember is a member as an assignor sees it.
type assignMember struct {
	// key orders the members: the instance id of a static member, else the member id.
	key string
	// topics are those that it subscribes to, by id.
	topics []assignTopic
	// owned is the target that it has now.
	owned rangeSet
}

// assign gives each member its ranges: every range of every topic that somebody subscribes to goes to exactly one of its
// subscribers. It is a pure function of what it is given, whatever the order of the members.
func assign(name string, members []assignMember) []rangeSet {
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(members[a].key, members[b].key) })
	sorted := make([]assignMember, len(members))
	for at, i := range order {
		sorted[at] = members[i]
	}
	var got [][]vtop.Range
	switch {
	case name == AssignorRange:
		got = assignRange(sorted)
	case assignAlike(sorted):
		got = assignEven(sorted)
	default:
		got = assignMixed(sorted)
	}
	out := make([]rangeSet, len(members))
	for at, i := range order {
		if len(got[at]) > 0 {
			out[i] = newRangeSet(got[at])
		}
	}
	return out
}

// assignKnown reports whether there is an assignor of that name.
func assignKnown(name string) bool { return slices.Contains(assignNames[:], name) }

// assignAlike reports whether all members subscribe to the same topics.
func assignAlike(members []assignMember) bool {
	for i := 1; i < len(members); i++ {
		if !slices.Equal(members[0].topics, members[i].topics) {
			return false
		}
	}
	return true
}

// assignSubscribers lists, for each topic that somebody subscribes to, its subscribers as indexes into members; and the topics by id.
func assignSubscribers(members []assignMember) (topics []assignTopic, subscribers map[vtop.TopicID][]int) {
	subscribers = map[vtop.TopicID][]int{}
	for i, m := range members {
		for _, t := range m.topics {
			if subscribers[t.id] == nil {
				topics = append(topics, t)
			}
			subscribers[t.id] = append(subscribers[t.id], i)
		}
	}
	slices.SortFunc(topics, assignTopic.compare)
	return topics, subscribers
}

// assignRange cuts each topic into runs, one for each subscriber, the first ones longer by one where it doesn't divide.
func assignRange(members []assignMember) [][]vtop.Range {
	out := make([][]vtop.Range, len(members))
	topics, subscribers := assignSubscribers(members)
	for _, t := range topics {
		of := subscribers[t.id]
		base, longer := int(t.ranges)/len(of), int(t.ranges)%len(of)
		next := int32(0)
		for at, i := range of {
			run := base
			if at < longer {
				run++
			}
			for range run {
				out[i] = append(out[i], vtop.Range{Topic: t.id, Index: next})
				next++
			}
		}
	}
	return out
}
