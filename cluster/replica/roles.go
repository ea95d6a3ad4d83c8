package replica

// Role is what this node does with its replica of a range right now.
type Role uint8

// The roles, in the order in which a healthy range meets them.
const (
	// RoleIdle: the replica is open, and nobody leads the range yet or this replica has not met the leader yet.
	RoleIdle Role = iota
	// RolePromoting: the lease is this process's, and it is not started.
	RolePromoting
	// RoleLeading: the lease is this process's and started.
	RoleLeading
	// RoleFollowing: the log is reconciled with the lease's epoch and takes the leader's batches.
	RoleFollowing
	// RoleLost: the replica may have forgotten; it does not vote, lead or feed others (I10).
	RoleLost
	// RoleFailed: the disk failed under the replica; it is read again before it does anything.
	RoleFailed
	// RoleReceiving: a repair job brings the replica; there is no log of it yet.
	RoleReceiving
)

// String names the role as people are shown it.
func (r Role) String() string {
	switch r {
	case RoleIdle:
		return "idle"
	case RolePromoting:
		return "promoting"
	case RoleLeading:
		return "leading"
	case RoleFollowing:
		return "following"
	case RoleLost:
		return "lost"
	case RoleFailed:
		return "failed"
	case RoleReceiving:
		return "receiving"
	}
	return "unknown"
}
