package adminapi

import (
	"context"
	"net/http"
	"net/url"
)

// Local is what one node alone knows. Nodes ask one another for it, so that any of them can answer for the cluster;
// it is no part of what operators' scripts rely on.
type Local struct {
	Node string `json:"node"`
	// RaftLeader: this node is the Raft leader, and its Verdicts and Stuck count.
	RaftLeader bool           `json:"raft_leader"`
	Verdicts   []LocalVerdict `json:"verdicts"`
	// Stuck says why ranges have no holder.
	Stuck []LocalStuck `json:"stuck"`
	// Ranges are the replicas of this node.
	Ranges []LocalRange `json:"ranges"`
	// Problems are those that only this node sees.
	Problems []Problem `json:"problems"`
	// Healing is what this node, being Raft leader, does about replicas that are missing.
	Healing *LocalHealing `json:"healing,omitempty"`
	// Pins are what this node holds open for transfers.
	Pins []Pin `json:"pins,omitempty"`
	// Drills is set if this process was started with --allow-drills.
	Drills *LocalDrills `json:"drills,omitempty"`
}

// LocalVerdict is what the node believes of another.
type LocalVerdict struct {
	Node          string `json:"node"`
	Alive         bool   `json:"alive"`
	Reason        string `json:"reason,omitempty"`
	SilentMS      int64  `json:"silent_ms"`
	DiskStalledMS int64  `json:"disk_stalled_ms"`
	DiskFailing   bool   `json:"disk_failing"`
	NoSpace       bool   `json:"no_space"`
	FreeBytes     int64  `json:"free_bytes"`
}

// LocalHealing is how many repairs the Raft leader starts at a time, and which ranges want a replica and get none.
type LocalHealing struct {
	Limit int          `json:"limit"`
	Stuck []LocalStuck `json:"stuck"`
}

// LocalStuck is a range that has no holder, or no place for a replica.
type LocalStuck struct {
	TopicID string `json:"topic_id"`
	Range   int32  `json:"range"`
	Reason  string `json:"reason"`
}

// LocalRange is one replica of the node, and if the node leads the range, what it knows of the others.
type LocalRange struct {
	TopicID   string `json:"topic_id"`
	Range     int32  `json:"range"`
	ReplicaID uint64 `json:"replica_id"`
	// Role is the replica's word for what it does: leading, following, promoting, receiving, damaged, lost, failed,
	// idle.
	Role          string `json:"role"`
	Epoch         int32  `json:"epoch"`
	Reason        string `json:"reason,omitempty"`
	HighWatermark int64  `json:"high_watermark"`
	LogEnd        int64  `json:"log_end"`
	DurableEnd    int64  `json:"durable_end"`
	LogStart      int64  `json:"log_start"`
	// TimeLeftMS of the lease by this node's clock; -1 unless it leads.
	TimeLeftMS int64          `json:"time_left_ms"`
	Followers  []LocalReplica `json:"followers,omitempty"`
}

// LocalReplica is another replica as its leader sees it.
type LocalReplica struct {
	ReplicaID  uint64 `json:"replica_id"`
	State      string `json:"state"`
	LogEnd     int64  `json:"log_end"`
	DurableEnd int64  `json:"durable_end"`
	Reason     string `json:"reason,omitempty"`
}

// LocalHandler is implemented by a Handler that also answers other nodes.
type LocalHandler interface {
	// Local is answered from this node alone. topic, a name, limits the ranges if it is not empty.
	Local(ctx context.Context, topic string) (*Local, error)
	// LocalSegments lists the segments of this node's replica.
	LocalSegments(ctx context.Context, topic string, n int32) ([]Segment, error)
}

func localRoutes(mux *http.ServeMux, h LocalHandler) {
	get(mux, "GET /v1/local", func(r *http.Request) (any, error) { return h.Local(r.Context(), r.URL.Query().Get("topic")) })
	get(mux, "GET /v1/local/segments/{topic}/{n}", func(r *http.Request) (any, error) {
		n, err := rangeIndex(r)
		if err != nil {
			return nil, err
		}
		return list(h.LocalSegments(r.Context(), r.PathValue("topic"), n))
	})
}

// Local calls GET /v1/local.
func (c *Client) Local(ctx context.Context, topic string) (*Local, error) {
	out := new(Local)
	path := "/v1/local"
	if topic != "" {
		path += "?topic=" + url.QueryEscape(topic)
	}
	return out, c.do(ctx, http.MethodGet, path, nil, out)
}

// LocalSegments calls GET /v1/local/segments/{topic}/{n}.
func (c *Client) LocalSegments(ctx context.Context, topic string, n int32) ([]Segment, error) {
	var out []Segment
	return out, c.do(ctx, http.MethodGet, rangePath("/v1/local/segments", topic, n), nil, &out)
}
