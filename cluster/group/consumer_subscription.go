package group

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/vtop-log/vtop/fsm"
)

// Limits of one subscription (I13).
const (
	// consumerMaxNames bounds the names in bytes, each with its end.
	consumerMaxNames = 256 << 10
	// consumerMaxPattern bounds the expression in bytes, consumerMaxProgram what it is compiled to, in instructions: repetitions
	// multiply.
	consumerMaxPattern = 4 << 10
	consumerMaxProgram = 20_000
)

// consumerSubscription is what a member wants to read: topics by name, and those whose whole name matches a regular expression
// in the syntax of RE2. It is never written again once made; members with equal subscriptions need not share it.
type consumerSubscription struct {
	names   []string // sorted, each once
	pattern string   // "" for none
	re      *regexp.Regexp
	// key is equal for equal subscriptions, and no others.
	key string
}

// newConsumerSubscription refuses what is too large with ErrInvalidRequest, a pattern that is no regular expression, or
// too costly a one, with ErrInvalidRegex.
func newConsumerSubscription(names []string, pattern string) (*consumerSubscription, error) {
	s := &consumerSubscription{names: slices.Clone(names), pattern: pattern}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	s.key = strings.Join(s.names, "\x00") + "\x00\x00" + pattern
	if len(s.key)-len(pattern) > consumerMaxNames {
		return nil, fmt.Errorf("%w: subscription to %d topics takes %d bytes, at most %d: use a regular expression", ErrInvalidRequest, len(s.names), len(s.key), consumerMaxNames)
	}
	if pattern == "" {
		return s, nil
	}
	if len(pattern) > consumerMaxPattern {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrInvalidRegex, len(pattern), consumerMaxPattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: want the syntax of RE2", ErrInvalidRegex, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRegex, err)
	}
	if len(program.Inst) > consumerMaxProgram {
		return nil, fmt.Errorf("%w: it takes %d steps, at most %d: repeat less", ErrInvalidRegex, len(program.Inst), consumerMaxProgram)
	}
	if s.re, err = regexp.Compile(`\A(?:` + pattern + `)\z`); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRegex, err)
	}
	return s, nil
}

func (s *consumerSubscription) cost() int { return len(s.key) + 4*len(s.names) + 16 }

func (s *consumerSubscription) matches(topic string) bool {
	_, named := slices.BinarySearch(s.names, topic)
	return named || s.re != nil && s.re.MatchString(topic)
}

// resolve lists the topics of the subscription that there are, by id.
func (s *consumerSubscription) resolve(state *fsm.State) []assignTopic {
	var out []assignTopic
	if s.re != nil {
		for t := range state.Topics() {
			if s.matches(t.Name) {
				out = append(out, assignTopic{t.ID, t.Ranges})
			}
		}
	} else {
		for _, name := range s.names {
			if t, ok := state.TopicByName(name); ok {
				out = append(out, assignTopic{t.ID, t.Ranges})
			}
		}
	}
	slices.SortFunc(out, assignTopic.compare)
	return out
}

// lookup resolves a subscription, or takes what another member's equal one was resolved to.
func (g *consumerGroup) lookup(s *consumerSubscription, state *fsm.State) []assignTopic {
	topics, known := g.resolved[s.key]
	if !known {
		topics = s.resolve(state)
		g.resolved[s.key] = topics
	}
	return topics
}

// refresh resolves all subscriptions anew, and reports whether any of them has other topics now, or more ranges.
func (g *consumerGroup) refresh(state *fsm.State) bool {
	clear(g.resolved)
	changed := false
	for _, m := range g.members {
		topics := g.lookup(m.subscription, state)
		changed = changed || !slices.Equal(topics, m.topics)
		m.topics = topics
	}
	return changed
}
