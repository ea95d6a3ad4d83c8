package fsm

import (
	"errors"
	"slices"

	"github.com/vtop-log/vtop"
)

// shape collects the first thing that is wrong with the form of a command. The checks must be the same in every
// build: they run in apply, too. A stricter one needs a feature level.
type shape struct{ bad *Refusal }

func (s *shape) err() error {
	if s.bad == nil {
		return nil
	}
	return s.bad
}

func asRefusal(err error) *Refusal {
	if err == nil {
		return nil
	}
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return refusef(CodeInvalid, "%v", err)
}

func (s *shape) must(ok bool, format string, args ...any) {
	if !ok && s.bad == nil {
		s.bad = refusef(CodeInvalid, format, args...)
	}
}

func (s *shape) atMost(what string, n, limit int) {
	if n > limit && s.bad == nil {
		s.bad = refusef(CodeLimit, "%s: %d, at most %d", what, n, limit)
	}
}

// name wants 1…MaxName bytes.
func (s *shape) name(field, v string) {
	s.must(v != "", "%s is empty", field)
	s.atMost("length of "+field, len(v), MaxName)
}

func (s *shape) text(field, v string) { s.atMost("length of "+field, len(v), MaxText) }

func (s *shape) node(v vtop.NodeName) { s.name("node name", string(v)) }

func (s *shape) uuid(field string, u vtop.UUID) { s.must(!u.IsZero(), "%s is zero", field) }

func (s *shape) rangeID(r vtop.Range) {
	s.uuid("topic id", r.Topic)
	s.must(r.Index >= 0, "range index %d is negative", r.Index)
}

func (s *shape) epoch(e vtop.Epoch) { s.must(e > vtop.NoEpoch, "epoch %d: want 1 or more", e) }

func (s *shape) offset(field string, o vtop.Offset) {
	s.must(o >= 0, "%s %d is negative", field, o)
}

// items wants at least one item in a batch.
func (s *shape) items(n int) {
	s.must(n > 0, "no items")
	s.atMost("items", n, MaxItems)
}

func (s *shape) addresses(a Addresses) {
	for _, v := range []string{a.Kafka, a.Peer, a.Gossip, a.Admin} {
		s.atMost("length of an address", len(v), MaxName)
	}
}

func (s *shape) identity(id Identity) {
	s.uuid("storage id", id.Storage)
	s.name("raft id", id.RaftID)
	s.must(id.Incarnation > 0, "incarnation is 0")
	s.uuid("boot nonce", id.BootNonce)
	s.must(id.MaxLevel > 0, "max level is 0")
	s.addresses(id.Addresses)
	s.atMost("length of rack", len(id.Rack), MaxName)
	s.text("version", id.Version)
}

func (s *shape) config(config map[string]string) {
	s.atMost("configuration keys", len(config), MaxConfigKeys)
	for _, k := range sortedKeys(config) { // in order, so that every node names the same culprit
		s.name("configuration key", k)
		s.atMost("length of configuration value "+k, len(config[k]), MaxValue)
	}
}

func (s *shape) topicName(name string) {
	s.must(name != "" && name != "." && name != "..", "topic name %q", name)
	s.atMost("length of topic name", len(name), 249)
	for _, c := range []byte(name) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		s.must(ok, "topic name %q: only letters, digits, '.', '_' and '-'", name)
	}
}

func (s *shape) placement(ranges [][]vtop.NodeName) {
	s.must(len(ranges) > 0, "no ranges")
	s.atMost("ranges of one topic", len(ranges), MaxRangesPerTopic)
	for i, nodes := range ranges {
		s.must(len(nodes) > 0, "range %d of the command has no replica", i)
		s.atMost("replicas of one range", len(nodes), MaxReplicas)
		for j, n := range nodes {
			s.node(n)
			s.must(!slices.Contains(nodes[:j], n), "range %d of the command names node %q twice", i, n)
		}
	}
}
