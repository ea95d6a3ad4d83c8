package vtop

// FenceMode says in which role a change to a range's log is made.
type FenceMode uint8

const (
	// FenceLead: append and closing of the tail by the leader; reads ask it, too. Wants holder and incarnation to be
	// this process, the epoch equal and started, and the holder's deadline not passed.
	FenceLead FenceMode = iota + 1
	// FencePromote: the holder fetches the missing part of the longest log. As FenceLead, but not started yet.
	FencePromote
	// FenceFollow: append by a follower. Wants the epoch equal and started, and another holder.
	FenceFollow
	// FenceCut: reconcile with the epoch table. Wants the epoch equal; started or not, whoever holds it.
	FenceCut
)

// String names the mode for error texts.
func (m FenceMode) String() string {
	switch m {
	case FenceLead:
		return "lead"
	case FencePromote:
		return "promote"
	case FenceFollow:
		return "follow"
	case FenceCut:
		return "cut"
	}
	return "unknown"
}
