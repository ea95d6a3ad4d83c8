package inspect

import "github.com/prometheus/client_golang/prometheus"

var (
	descGroupSlots       = desc("group_coordinator_slots", "Slots of consumer groups that this node coordinates, of 64 in the cluster.")
	descGroupsInMemory   = desc("groups_in_memory", "Consumer groups that this node has in memory: those with members, and those in use.")
	descGroupMemberBytes = desc("group_member_bytes", "Bytes of subscriptions and assignments of the members of classic groups in memory.")
	descGroupWaiting     = desc("group_changes_waiting", "Changes of consumer groups (commits, members) that wait to be committed to the metadata log.")
	descGroupEntries     = desc("group_entries_total", "Entries of the metadata log proposed for consumer groups by this node.")
	descGroupChanges     = desc("group_changes_total", "Changes of consumer groups in those entries that were applied.")
	descGroupCommits     = desc("group_commits_total", "Offset commits acknowledged.")
	descGroupExpired     = desc("group_offsets_expired_total", "Committed offsets of groups without members that were let go of.")
	descGroupGenerations = desc("group_generations_total", "Generations of classic groups with members that were made: rebalances.")
)

// collectGroups reads what the coordinator of this node says.
func (c *Collector) collectGroups(gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64)) {
	groups, err := c.node.Groups()
	if err != nil {
		return
	}
	s := groups.Stats()
	gauge(descGroupSlots, float64(s.Slots))
	gauge(descGroupsInMemory, float64(s.Groups))
	gauge(descGroupMemberBytes, float64(s.MemberBytes))
	gauge(descGroupWaiting, float64(s.Waiting))
	count(descGroupEntries, s.Entries)
	count(descGroupChanges, s.Changes)
	count(descGroupCommits, s.Commits)
	count(descGroupExpired, s.Expired)
	count(descGroupGenerations, s.Generations)
}
