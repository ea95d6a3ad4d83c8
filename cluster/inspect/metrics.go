package inspect

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vtop-log/vtop/cluster"
	"github.com/vtop-log/vtop/fsm"
)

// Collector reads a node's figures when Prometheus asks. Its labels are bounded: none names a topic or a client.
type Collector struct{ node *cluster.Node }

// NewCollector makes the collector of a node.
func NewCollector(n *cluster.Node) *Collector { return &Collector{n} }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("vtop_"+name, help, labels, nil)
}

var (
	descReady         = desc("ready", "1 if the node has joined and caught up with the metadata.")
	descRanges        = desc("ranges", "Replicas of this node by what they do.", "role")
	descUnder         = desc("ranges_under_replicated", "Ranges led here of which a voter is lost or behind the high watermark.")
	descWaiting       = desc("batches_waiting", "Batches that wait for their acknowledgement.")
	descAppends       = desc("batches_appended_total", "Batches admitted as leader.")
	descSent          = desc("replication_sent_bytes_total", "Bytes sent to followers.")
	descCuts          = desc("log_cuts_total", "Divergent suffixes cut.")
	descResets        = desc("log_resets_total", "Logs begun anew at the leader's log start.")
	descStorageFailed = desc("storage_failures_total", "Writes and syncs that failed.")
	descNoSpace       = desc("batches_refused_no_space_total", "Batches refused because the disk is under its reserve.")
	descRebuilds      = desc("replication_rebuilds_total", "Replication connections torn down because a replica made no progress.")
	descStalled       = desc("disk_stalled_seconds", "How long the oldest write in flight has taken.")
	descFailing       = desc("disk_failing", "1 if the last probe of the disk came back with an error.")
	descTimeLeft      = desc("lease_time_left_seconds", "How long this node may lead without another answer of the metadata quorum.")
	descRaftLeader    = desc("raft_leader", "1 if this node is the Raft leader.")
	descRaft          = desc("raft", "Raft's own figures, by its names.", "name")
	descLeases        = desc("leases", "Leases held by this node, by the applied state.")
	descLost          = desc("replicas_lost", "Replicas of the cluster that may have forgotten what they held.")
	descPending       = desc("nodes_pending", "Data directories that claim the name of another.")
	descApplied       = desc("metadata_applied_index", "Raft index of the applied state.")
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge(descReady, truth(c.node.Ready() == nil))
	if engine, err := c.node.Engine(); err == nil {
		m := engine.Metrics()
		for role, n := range map[string]int{"leading": m.Leading, "following": m.Following, "promoting": m.Promoting, "lost": m.Lost, "failed": m.Failed} {
			gauge(descRanges, float64(n), role)
		}
		gauge(descUnder, float64(m.UnderReplicated))
		gauge(descWaiting, float64(m.Waiting))
		count(descAppends, m.Appends)
		count(descSent, m.SentBytes)
		count(descCuts, m.Cuts)
		count(descResets, m.Resets)
		count(descStorageFailed, m.StorageFailures)
		count(descNoSpace, m.NoSpace)
		count(descRebuilds, m.Rebuilds)
	}
	c.collectGroups(gauge, count)
	stalled, failing := c.node.Disk()
	gauge(descStalled, stalled.Seconds())
	gauge(descFailing, truth(failing))
	gauge(descTimeLeft, max(0, c.node.TimeLeft().Seconds()))
	gauge(descRaftLeader, truth(c.node.IsRaftLeader()))
	for name, text := range c.node.RaftStats() {
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			gauge(descRaft, v, name)
		}
	}
	c.collectState(c.node.State(), gauge)
}

func (c *Collector) collectState(state *fsm.State, gauge func(*prometheus.Desc, float64, ...string)) {
	leases, lost, pending := 0, 0, 0
	for range state.LeasesOf(c.node.Self()) {
		leases++
	}
	for r := range state.Ranges() {
		for _, rep := range r.Replicas {
			if rep.Lost != "" {
				lost++
			}
		}
	}
	for n := range state.Nodes() {
		pending += len(n.Pending)
	}
	gauge(descLeases, float64(leases))
	gauge(descLost, float64(lost))
	gauge(descPending, float64(pending))
	gauge(descApplied, float64(state.Index()))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
