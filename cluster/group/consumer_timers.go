package group

import (
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// want has tick called by then.
func (g *consumerGroup) want(at time.Time) {
	if g.next.IsZero() || at.Before(g.next) {
		g.next = at
	}
}

// touch begins a member's session anew.
func (g *consumerGroup) touch(v view, m *consumerMember) {
	m.expires = v.now.Add(g.limits.ConsumerSession)
	g.want(m.expires)
}

// deadline is when tick is wanted next; zero: not at all.
func (g *consumerGroup) deadline() time.Time { return g.next }

// tick takes out members whose session has ended or that did not give up in time what they were told to, and looks at the topics
// anew.
func (g *consumerGroup) tick(v view) *fsm.GroupItem {
	changed := g.refresh(v.state) || g.outdated
	g.next = time.Time{}
	for _, m := range g.sorted() {
		late := len(m.revoking) > 0 && !v.now.Before(m.revokeBy)
		if late || !v.now.Before(m.expires) {
			g.take(m)
			changed = true
			continue
		}
		g.want(m.expires)
		if len(m.revoking) > 0 {
			g.want(m.revokeBy)
		}
	}
	if changed {
		g.regroup(v)
	}
	return g.item()
}

// rearm begins all timers anew: for a while nobody could be heard.
func (g *consumerGroup) rearm(v view) {
	for _, m := range g.members {
		g.touch(v, m)
		if len(m.revoking) > 0 {
			m.revokeBy = v.now.Add(m.rebalance)
			g.want(m.revokeBy)
		}
	}
}
