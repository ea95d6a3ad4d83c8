package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vtop-log/vtop"
)

// topicN is the n-th topic of a test.
func topicN(n int) vtop.TopicID { return vtop.TopicID{15: byte(n)} }

// eachSeed runs fn with n sources of chance, each the same in every run. (What rapid draws leans to small numbers: most worlds
// it made were trivial.)
func eachSeed(t *testing.T, n int, fn func(d dice)) {
	t.Helper()
	seed := 0
	defer func() {
		if t.Failed() {
			t.Logf("seed %d of %d", seed, n)
		}
	}()
	for seed = range n {
		fn(dice{rand.New(rand.NewPCG(uint64(seed), 848))})
	}
}

// dice draws numbers, each with the same chance.
type dice struct{ *rand.Rand }

func (d dice) between(least, most int) int { return least + d.IntN(most-least+1) }

// assignWorld draws topics and members; with alike, all of them subscribe to the same.
func assignWorld(d dice, alike bool, maxTopics, maxRanges, maxMembers int) []assignMember {
	var topics []assignTopic
	for n := range d.between(1, maxTopics) {
		topics = append(topics, assignTopic{topicN(n + 1), int32(d.between(1, maxRanges))})
	}
	members := make([]assignMember, min(maxMembers, d.between(1, maxMembers+2)))
	for i := range members {
		members[i] = assignMember{key: fmt.Sprintf("m%02d", i), topics: topics}
		if !alike {
			members[i].topics = slices.DeleteFunc(slices.Clone(topics), func(assignTopic) bool { return d.between(0, 2) == 0 })
		}
	}
	return members
}

// TestAssignWorld_IsNotTrivial: enough of the drawn worlds leave an assignor a choice, or the properties below would hold of nearly nothing.
func TestAssignWorld_IsNotTrivial(t *testing.T) {
	drawn, open := 0, 0
	eachSeed(t, 1000, func(d dice) {
		topics, subscribers := assignSubscribers(assignWorld(d, false, 3, 3, 4))
		choices := 1
		for _, topic := range topics {
			for range topic.ranges {
				choices *= len(subscribers[topic.id])
			}
		}
		drawn++
		if choices >= 16 {
			open++
		}
	})
	if open*3 < drawn {
		t.Fatalf("of %d worlds only %d leave 16 or more assignments to choose from", drawn, open)
	}
}

// checkExact fails unless every range of every topic subscribed to is with exactly one of its subscribers, and nothing else is with anybody.
func checkExact(t testing.TB, members []assignMember, got []rangeSet) {
	t.Helper()
	owner := map[vtop.Range]int{}
	for i, s := range got {
		if !slices.IsSortedFunc(s, vtop.Range.Compare) {
			t.Fatalf("member %d: not sorted: %v", i, s)
		}
		for _, r := range s {
			if other, twice := owner[r]; twice {
				t.Fatalf("%v is with members %d and %d", r, other, i)
			}
			owner[r] = i
			if !members[i].subscribes(r.Topic) {
				t.Fatalf("%v is with member %d, which does not subscribe to it", r, i)
			}
		}
	}
	topics, _ := assignSubscribers(members)
	total := 0
	for _, topic := range topics {
		total += int(topic.ranges)
		for i := range topic.ranges {
			if _, has := owner[vtop.Range{Topic: topic.id, Index: i}]; !has {
				t.Fatalf("topic %v range %d is with nobody", topic.id, i)
			}
		}
	}
	if total != len(owner) {
		t.Fatalf("%d ranges are assigned, there are %d", len(owner), total)
	}
}

func spread(got []rangeSet) (least, most int) {
	least = len(got[0])
	for _, s := range got {
		least, most = min(least, len(s)), max(most, len(s))
	}
	return least, most
}

func TestAssign_EveryRangeOnce(t *testing.T) {
	for _, name := range assignNames {
		for _, alike := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s alike=%v", name, alike), func(t *testing.T) {
				eachSeed(t, 1000, func(d dice) {
					members := assignWorld(d, alike, 5, 9, 7)
					got := assign(name, members)
					checkExact(t, members, got)
					// Case: what everybody owns changes nothing about it, even if it's nonsense.
					for i := range members {
						members[i].owned = got[d.between(0, len(got)-1)]
					}
					checkExact(t, members, assign(name, members))
				})
			})
		}
	}
}

func TestAssign_OrderOfMembersIsOfNoMatter(t *testing.T) {
	eachSeed(t, 1000, func(d dice) {
		members := assignWorld(d, d.between(0, 1) == 0, 4, 8, 6)
		name := assignNames[d.IntN(len(assignNames))]
		first := assign(name, members)
		turned := slices.Clone(members)
		slices.Reverse(turned)
		second := assign(name, turned)
		slices.Reverse(second)
		for i := range first {
			if !first[i].equal(second[i]) {
				t.Fatalf("member %d: %v, in another order %v", i, first[i], second[i])
			}
		}
	})
}

// TestAssignUniform_EvenAndSticky: with equal subscriptions nobody has two more than another, and no more ranges move than
// the quotas ask for.
func TestAssignUniform_EvenAndSticky(t *testing.T) {
	eachSeed(t, 1000, func(d dice) {
		members := assignWorld(d, true, 4, 9, 8)
		got := assign(AssignorUniform, members)
		for range d.between(1, 5) {
			members = churn(d, members, got)
			next := assign(AssignorUniform, members)
			checkExact(t, members, next)
			if least, most := spread(next); most > least+1 {
				t.Fatalf("between %d and %d ranges", least, most)
			}
			checkSticky(t, members, next)
			got = next
		}
	})
}

// churn takes a member away, adds one, or lets a topic grow.
func churn(d dice, members []assignMember, got []rangeSet) []assignMember {
	members, topics := slices.Clone(members), slices.Clone(members[0].topics)
	for i := range members {
		members[i].owned = got[i]
	}
	switch d.between(0, 2) {
	case 0:
		if len(members) > 1 {
			at := d.between(0, len(members)-1)
			members = slices.Delete(members, at, at+1)
		}
	case 1:
		members = append(members, assignMember{key: fmt.Sprintf("n%d", d.between(0, 1<<10))})
	case 2:
		if len(topics) > 0 {
			topics[d.between(0, len(topics)-1)].ranges += 3
		}
	}
	for i := range members {
		members[i].topics = topics
	}
	return members
}

// checkSticky compares what was kept with the most that can be kept: each member at most its quota, and only
// as many members with the larger quota as there are odd ranges.
func checkSticky(t *testing.T, members []assignMember, next []rangeSet) {
	total, kept := 0, 0
	for i := range next {
		total += len(next[i])
		kept += len(next[i].and(members[i].owned))
	}
	base, longer := total/len(members), total%len(members)
	most := 0
	for _, m := range members {
		n := len(m.owned)
		if n > base && longer > 0 {
			longer--
			most += base + 1
		} else {
			most += min(n, base)
		}
	}
	if kept != most {
		t.Fatalf("kept %d ranges where %d could stay", kept, most)
	}
}

// TestAssignUniform_NewMemberTakesOfEveryTopic: what moves to a new member is spread over the topics.
func TestAssignUniform_NewMemberTakesOfEveryTopic(t *testing.T) {
	topics := []assignTopic{{topicN(1), 10}, {topicN(2), 10}, {topicN(3), 10}}
	first := assign(AssignorUniform, []assignMember{{key: "a", topics: topics}})
	got := assign(AssignorUniform, []assignMember{{key: "a", topics: topics, owned: first[0]}, {key: "b", topics: topics}})
	for i, s := range got {
		count := map[vtop.TopicID]int{}
		for _, r := range s {
			count[r.Topic]++
		}
		for _, topic := range topics {
			if count[topic.id] != 5 {
				t.Errorf("member %d has %d of %v: %v", i, count[topic.id], topic.id, count)
			}
		}
	}
}

// TestAssignMixed_NothingIsMoreEven compares with all assignments there are.
func TestAssignMixed_NothingIsMoreEven(t *testing.T) {
	eachSeed(t, 1000, func(d dice) {
		members := assignWorld(d, false, 3, 3, 4)
		if d.between(0, 1) == 0 {
			for i := range members {
				members[i].owned = assign(AssignorRange, members)[i]
			}
		}
		got := assign(AssignorUniform, members)
		checkExact(t, members, got)
		counts := make([]int, len(members))
		for i := range got {
			counts[i] = len(got[i])
		}
		topics, subscribers := assignSubscribers(members)
		if have, best := squares(counts), bestSquares(assignFree(topics, nil), subscribers, make([]int, len(members))); have != best {
			t.Fatalf("%v has the sum of squares %d, the best is %d", counts, have, best)
		}
	})
}

func squares(counts []int) (sum int) {
	for _, n := range counts {
		sum += n * n
	}
	return sum
}

func bestSquares(free []vtop.Range, subscribers map[vtop.TopicID][]int, counts []int) int {
	if len(free) == 0 {
		return squares(counts)
	}
	best := -1
	for _, i := range subscribers[free[0].Topic] {
		counts[i]++
		if n := bestSquares(free[1:], subscribers, counts); best < 0 || n < best {
			best = n
		}
		counts[i]--
	}
	return best
}

// TestAssignMixed_StableWhenNothingChanges: what is already as even as can be stays as it is.
func TestAssignMixed_StableWhenNothingChanges(t *testing.T) {
	eachSeed(t, 1000, func(d dice) {
		members := assignWorld(d, false, 5, 9, 7)
		got := assign(AssignorUniform, members)
		for i := range members {
			members[i].owned = got[i]
		}
		for i, again := range assign(AssignorUniform, members) {
			if !again.equal(got[i]) {
				t.Fatalf("member %d had %v and has %v", i, got[i], again)
			}
		}
	})
}

func TestAssignRange_RunsAndSameNumbers(t *testing.T) {
	eachSeed(t, 1000, func(d dice) {
		ranges := int32(d.between(1, 9))
		topics := []assignTopic{{topicN(1), ranges}, {topicN(2), ranges}}
		members := make([]assignMember, d.between(1, 6))
		for i := range members {
			members[i] = assignMember{key: fmt.Sprint(i), topics: topics}
		}
		for i, s := range assign(AssignorRange, members) {
			numbers := map[vtop.TopicID][]int32{}
			for _, r := range s {
				numbers[r.Topic] = append(numbers[r.Topic], r.Index)
			}
			if !slices.Equal(numbers[topicN(1)], numbers[topicN(2)]) {
				t.Fatalf("member %d has other numbers of each topic: %v", i, numbers)
			}
			if run := numbers[topicN(1)]; len(run) > 0 && int(run[len(run)-1]-run[0]) != len(run)-1 {
				t.Fatalf("member %d has no run: %v", i, run)
			}
		}
	})
}

func TestAssign_ManyMembersManyRanges(t *testing.T) {
	var topics []assignTopic
	for n := range 20 {
		topics = append(topics, assignTopic{topicN(n + 1), 500})
	}
	members := make([]assignMember, 1000)
	for i := range members {
		members[i] = assignMember{key: fmt.Sprintf("m%03d", i), topics: topics[i%10:]}
	}
	got := assign(AssignorUniform, members)
	checkExact(t, members, got)
	if least, most := spread(got); most > least+1 {
		t.Fatalf("between %d and %d ranges", least, most)
	}
}
