package group

import (
	"fmt"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// Limits are what clients may ask for (I13). Names in brackets are Kafka's.
type Limits struct {
	// MaxMembers of one group (group.max.size), at most fsm.MaxGroupMembers.
	MaxMembers int
	// MaxGroupBytes bounds subscriptions and assignments of the members of one group together.
	MaxGroupBytes int
	// MinSession and MaxSession bound the session timeouts of the classic protocol (group.min.session.timeout.ms …). A session may
	// be shorter than the lease time: its member is answered only while the quorum's last word is younger than the session.
	MinSession, MaxSession time.Duration
	// MaxRebalance bounds the time that members get to join again.
	MaxRebalance time.Duration
	// InitialDelay is how long the first rebalance of an empty group waits for more members
	// (group.initial.rebalance.delay.ms); it begins again while they come.
	InitialDelay time.Duration
	// NewMemberTimeout ends the wait of a member that joined without an id.
	NewMemberTimeout time.Duration

	// ConsumerSession and ConsumerHeartbeat are session timeout and heartbeat interval of the consumer protocol
	// (group.consumer.session.timeout.ms, group.consumer.heartbeat.interval.ms). The session is at least the lease time.
	ConsumerSession, ConsumerHeartbeat time.Duration
}

// DefaultLimits are the shipped limits: Kafka's, save for a shorter initial delay.
func DefaultLimits() Limits {
	return Limits{
		MaxMembers:       fsm.MaxGroupMembers,
		MaxGroupBytes:    3 << 20,
		MinSession:       6 * time.Second,
		MaxSession:       30 * time.Minute,
		MaxRebalance:     time.Hour,
		InitialDelay:     500 * time.Millisecond,
		NewMemberTimeout: 5 * time.Minute,

		ConsumerSession:   45 * time.Second,
		ConsumerHeartbeat: 5 * time.Second,
	}
}

// Validate refuses limits that are out of range or do not fit one another.
func (l *Limits) Validate() error {
	switch {
	case l.MaxMembers < 1 || l.MaxMembers > fsm.MaxGroupMembers:
		return fmt.Errorf("group limits: MaxMembers %d: want 1 to %d", l.MaxMembers, fsm.MaxGroupMembers)
	case l.MaxGroupBytes < 1<<10 || l.MaxGroupBytes > 3<<20:
		return fmt.Errorf("group limits: MaxGroupBytes %d: want 1 KiB to 3 MiB, so that an update of a whole group is one command", l.MaxGroupBytes)
	case l.MinSession <= 0 || l.MaxSession < l.MinSession || l.MaxSession > 24*time.Hour:
		return fmt.Errorf("group limits: sessions of %s to %s: want more than 0, at most a day, the first not above the second", l.MinSession, l.MaxSession)
	case l.MaxRebalance <= 0 || l.MaxRebalance > 24*time.Hour || l.InitialDelay < 0 || l.InitialDelay > time.Minute || l.NewMemberTimeout <= 0:
		return fmt.Errorf("group limits: MaxRebalance %s, InitialDelay %s, NewMemberTimeout %s: want up to a day, up to a minute, more than 0",
			l.MaxRebalance, l.InitialDelay, l.NewMemberTimeout)
	case l.ConsumerHeartbeat <= 0 || l.ConsumerSession < 2*l.ConsumerHeartbeat:
		return fmt.Errorf("group limits: ConsumerSession %s, ConsumerHeartbeat %s: want the first at least twice the second", l.ConsumerSession, l.ConsumerHeartbeat)
	}
	return nil
}

// CheckLease refuses a lease time above the sessions that clients do not choose: a coordinator that was replaced without hearing of it goes
// on answering for up to the lease time, and its successor takes members out after a session.
func (l *Limits) CheckLease(lease time.Duration) error {
	if lease > l.ConsumerSession {
		return fmt.Errorf("lease time %s: want at most the %s session of consumer groups, or a coordinator that was cut off would still say yes to members that its successor has taken out",
			lease, l.ConsumerSession)
	}
	return nil
}
