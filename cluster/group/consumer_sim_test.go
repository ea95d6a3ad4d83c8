package group

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

// simConsumer is a client as the protocol wants it: it begins to read what it is given at once, and takes its time to give up
// what it is to lose.
type simConsumer struct {
	id, instance string
	epoch        int32
	topics       []string
	regex        string
	assignor     string

	joined, away bool
	// reads is what it reads now, told what it was told last to read, said what it said last that it has.
	reads, told, said rangeSet
	// busy is how many heartbeats it goes on with before it gives up what it is to lose.
	busy int
	// unsure: an answer did not come, so it says all of itself next.
	unsure bool
	heard  time.Time
}

// consumerSim plays many clients against one group: requests and answers get lost, clients come, go, die, are slow and change their
// minds, topics come, grow and go, and the coordinator dies.
type consumerSim struct {
	*consumerWorld
	d       dice
	clients []*simConsumer
	named   int
	live    []vtop.TopicID

	handed, lost, failed int
	// readers are who last read each range, to count how often it passes to another.
	readers map[vtop.Range]string
}

func (s *consumerSim) newID() string {
	s.named++
	return fmt.Sprintf("m%d", s.named)
}

// mind is a subscription of those that the clients choose from.
func (s *consumerSim) mind(c *simConsumer) {
	c.topics, c.regex = []string{"a", "b"}, ""
	switch s.d.between(0, 3) {
	case 0:
		c.topics = []string{[]string{"a", "b", "c"}[s.d.IntN(3)]}
	case 1:
		c.topics, c.regex = []string{}, "[abd]"
	}
	c.assignor = []string{"", "", AssignorUniform, AssignorRange}[s.d.IntN(4)]
}

func (s *consumerSim) heartbeat(c *simConsumer) {
	s.t.Helper()
	h := ConsumerHeartbeat{MemberID: c.id, Epoch: c.epoch, Rebalance: -1}
	if c.instance != "" {
		h.InstanceID = &c.instance
	}
	if !c.joined || c.unsure {
		h.Rebalance, h.Topics, h.Regex, h.Assignor = 30*time.Second, c.topics, &c.regex, &c.assignor
	}
	if !c.joined {
		h.Epoch = consumerJoins
	}
	if !c.joined || c.unsure || !c.reads.equal(c.said) {
		h.Owned = append([]vtop.Range{}, c.reads...)
	}
	switch s.d.between(0, 19) {
	case 0: // the request does not arrive
		c.unsure = true
		s.lost++
		return
	case 1: // the answer does not
		_, _ = s.beat(h)
		c.heard, c.unsure = s.now, true
		s.lost++
		return
	}
	a, err := s.beat(h)
	s.answered(c, &h, a, err)
}

func (s *consumerSim) answered(c *simConsumer, h *ConsumerHeartbeat, a ConsumerAnswer, err error) {
	s.t.Helper()
	c.heard = s.now
	switch {
	case errors.Is(err, ErrUnreleasedInstance):
		return // it comes again
	case errors.Is(err, ErrFencedMemberEpoch):
		c.reset(c.id)
		return
	case errors.Is(err, ErrUnknownMember), errors.Is(err, ErrFencedInstance):
		c.reset(s.newID())
		return
	case err != nil:
		s.t.Fatalf("%+v: %v", h, err)
	}
	if h.Owned != nil {
		c.said = c.reads
	}
	c.joined, c.unsure, c.epoch = true, false, a.Epoch
	if a.Assigned != nil {
		c.told = newRangeSet(slices.Clone(a.Assigned))
		c.reads = c.reads.or(c.told)
		if !c.reads.equal(c.told) && c.busy == 0 {
			c.busy = s.d.between(1, 4)
		}
	}
	if c.busy > 0 {
		c.busy--
	}
	if c.busy == 0 {
		c.reads = c.told
	}
	for _, r := range c.reads {
		if s.readers[r] != c.id {
			s.readers[r] = c.id
			s.handed++
		}
	}
}

// reset has a client give up everything and join anew.
func (c *simConsumer) reset(id string) {
	c.id, c.epoch, c.joined, c.unsure, c.busy = id, 0, false, false, 0
	c.reads, c.told, c.said = nil, nil, nil
}

// alone fails if two clients read the same range. Who was taken out for being late does not count: it has been told by nobody.
func (s *consumerSim) alone() {
	s.t.Helper()
	reader := map[vtop.Range]*simConsumer{}
	for _, c := range s.clients {
		if s.g.members[c.id] == nil {
			continue
		}
		for _, r := range c.reads {
			if other := reader[r]; other != nil {
				s.t.Fatalf("%s is read by %s and by %s", r, other.id, c.id)
			}
			reader[r] = c
		}
	}
}

// step is one thing that happens.
func (s *consumerSim) step() {
	s.t.Helper()
	switch n := s.d.between(0, 99); {
	case n < 4 && len(s.clients) < 8:
		c := &simConsumer{id: s.newID()}
		if s.d.between(0, 2) == 0 {
			c.instance = fmt.Sprintf("i%d", s.named)
		}
		s.mind(c)
		s.clients = append(s.clients, c)
	case n < 11:
		s.depart()
	case n < 15:
		s.topicsMove()
	case n < 19:
		s.failed++
		s.failover()
		s.pass(0)
	case n < 22 && len(s.clients) > 0:
		c := s.clients[s.d.IntN(len(s.clients))]
		s.mind(c)
		c.unsure = true
	case n < 35:
		s.wait(time.Duration(s.d.between(1, 8)) * time.Second)
	case len(s.clients) > 0:
		if c := s.clients[s.d.IntN(len(s.clients))]; !c.away {
			s.heartbeat(c)
		}
	}
	s.alone()
}

// depart has a client leave, die, go away for a while, or come back as another process.
func (s *consumerSim) depart() {
	if len(s.clients) == 0 {
		return
	}
	at := s.d.IntN(len(s.clients))
	c := s.clients[at]
	switch {
	case c.away:
		c.reset(s.newID())
		c.away = false
	case !c.joined:
	case c.instance != "" && s.d.between(0, 1) == 0:
		if _, err := s.beat(alive(c.id, consumerAway)); err == nil {
			c.away, c.reads, c.told = true, nil, nil
		}
	case s.d.between(0, 1) == 0:
		_, _ = s.beat(alive(c.id, consumerLeaves))
		s.clients = slices.Delete(s.clients, at, at+1)
	default: // nobody hears of it until its session ends
		s.clients = slices.Delete(s.clients, at, at+1)
	}
}

func (s *consumerSim) topicsMove() {
	switch s.d.between(0, 2) {
	case 0:
		name := string(rune('a' + s.d.IntN(4)))
		if _, there := s.machine.State().TopicByName(name); !there {
			s.live = append(s.live, s.topic(name, s.d.between(1, 5)))
		}
	case 1:
		if len(s.live) > 0 {
			s.grow(s.live[s.d.IntN(len(s.live))], s.d.between(1, 2))
		}
	case 2:
		if len(s.live) > 1 {
			at := s.d.IntN(len(s.live))
			s.drop(s.live[at])
			s.live = slices.Delete(s.live, at, at+1)
		}
	}
}

// wait lets time pass; clients that live are heard of before their session ends.
func (s *consumerSim) wait(d time.Duration) {
	for _, c := range s.clients {
		for tries := 0; !c.away && s.now.Sub(c.heard) > 20*time.Second && tries < 50; tries++ {
			s.heartbeat(c)
		}
	}
	s.pass(d)
}

// settle lets all clients speak until nothing moves any more, and checks what came of it.
func (s *consumerSim) settle() {
	s.t.Helper()
	for range 60 {
		for _, c := range s.clients {
			if c.away { // it comes back as another process
				c.reset(s.newID())
				c.away = false
			}
			s.heartbeat(c)
			s.alone()
		}
		s.wait(time.Second)
	}
	if name := s.g.stateName(); len(s.g.members) > 0 && name != "Stable" {
		s.t.Fatalf("the group ends %s", name)
	}
	in := []assignMember{}
	got := []rangeSet{}
	for _, c := range s.clients {
		m := s.g.members[c.id]
		if m == nil {
			s.t.Fatalf("%s is not in the group", c.id)
		}
		if !c.reads.equal(m.target) {
			s.t.Fatalf("%s reads %v, its target is %v", c.id, c.reads, m.target)
		}
		in, got = append(in, assignMember{topics: m.subscription.resolve(s.machine.State())}), append(got, c.reads)
	}
	if len(s.g.members) != len(s.clients) {
		s.t.Fatalf("%d members, %d clients", len(s.g.members), len(s.clients))
	}
	checkExact(s.t, in, got)
}

// TestConsumer_NoRangeHasTwoReaders is the promise of the protocol, in any order of events.
func TestConsumer_NoRangeHasTwoReaders(t *testing.T) {
	handed, lost, failed := 0, 0, 0
	eachSeed(t, 200, func(d dice) {
		s := &consumerSim{consumerWorld: newConsumerWorld(t), d: d, readers: map[vtop.Range]string{}}
		s.live = append(s.live, s.topic("a", 5), s.topic("b", 3))
		for range 200 {
			s.step()
		}
		s.settle()
		handed, lost, failed = handed+s.handed, lost+s.lost, failed+s.failed
	})
	t.Logf("%d times a range passed to another reader, %d messages lost, %d coordinators died", handed, lost, failed)
	if handed < 2000 || lost < 1000 || failed < 500 {
		t.Fatalf("too little happened: %d handed over, %d lost, %d failed over", handed, lost, failed)
	}
}
