package adminapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Group is one line of the list of consumer groups.
type Group struct {
	Group string `json:"group"`
	// Kind is the protocol of its members: classic, in which one of them assigns, or consumer, in which the coordinator does.
	Kind string `json:"kind"`
	// State is Kafka's word: Empty, PreparingRebalance, CompletingRebalance, Assigning, Reconciling, Stable; unknown if its coordinator
	// does not answer.
	State string `json:"state"`
	// Epoch is the generation of a classic group, the group epoch of a consumer group.
	Epoch   int32 `json:"epoch"`
	Members int   `json:"members"`
	// Offsets is of how many ranges offsets are committed.
	Offsets int `json:"offsets"`
	// Coordinator is the node that coordinates it, under CoordinatorEpoch, the epoch of the lease of Slot; empty while nobody holds that.
	Coordinator      string `json:"coordinator"`
	Slot             int32  `json:"slot"`
	CoordinatorEpoch int32  `json:"coordinator_epoch"`
	// EmptySince is when the last member left.
	EmptySince time.Time `json:"empty_since,omitzero"`
}

// GroupDetail is what `vtopctl group describe` prints.
type GroupDetail struct {
	Group
	AssignmentEpoch int32 `json:"assignment_epoch"`
	// Protocol is the assignor.
	Protocol        string        `json:"protocol"`
	MembersDetail   []GroupMember `json:"member_list"`
	CommittedDetail []GroupOffset `json:"offset_list"`
}

// GroupMember is one member of a group, as it is kept in the metadata.
type GroupMember struct {
	ID         string `json:"id"`
	InstanceID string `json:"instance_id,omitempty"`
	ClientID   string `json:"client_id"`
	ClientHost string `json:"client_host"`
	Rack       string `json:"rack,omitempty"`
	// Epoch is the member epoch, in a classic group the generation; -2: a static member that is away.
	Epoch       int32    `json:"epoch"`
	RebalanceMS int64    `json:"rebalance_ms"`
	Topics      []string `json:"topics,omitempty"`
	Regex       string   `json:"regex,omitempty"`
	// Assigned is what it may read, as TOPIC/N; Revoking what it was told to give up and still has, Target what it will have (both of
	// consumer groups alone).
	Assigned []string `json:"assigned"`
	Revoking []string `json:"revoking,omitempty"`
	Target   []string `json:"target,omitempty"`
}

// GroupOffset is the committed offset of one range.
type GroupOffset struct {
	Topic       string    `json:"topic"`
	Range       int32     `json:"range"`
	Offset      int64     `json:"offset"`
	LeaderEpoch int32     `json:"leader_epoch"`
	Metadata    string    `json:"metadata,omitempty"`
	CommittedAt time.Time `json:"committed_at"`
	LogStart    int64     `json:"log_start"`
	// HighWatermark and Lag, how far the group is behind it, are -1 if the range's leader does not answer.
	HighWatermark int64 `json:"high_watermark"`
	Lag           int64 `json:"lag"`
	// Member is the id of the member that reads the range; empty for none.
	Member string `json:"member,omitempty"`
}

// Where ResetOffsets sets the offsets to.
const (
	ToEarliest = "earliest"
	ToLatest   = "latest"
	ToOffset   = "offset"
	ToTime     = "time"
)

// AllRanges as Range of ResetOffsets means all ranges of the topic.
const AllRanges = -1

// ResetOffsets is the body of POST /v1/group/reset. The group must have no members.
type ResetOffsets struct {
	Group string `json:"group"`
	Topic string `json:"topic"`
	Range int32  `json:"range"`
	// To is earliest, latest, offset or time. With offset, Offset counts, as far as it is in the log. With time it is the first record
	// whose timestamp is Time, in whole milliseconds, or later; the end where there is none.
	To     string    `json:"to"`
	Offset int64     `json:"offset"`
	Time   time.Time `json:"time,omitzero"`
	DryRun bool      `json:"dry_run"`
}

// OffsetReset is what became of one range.
type OffsetReset struct {
	Topic string `json:"topic"`
	Range int32  `json:"range"`
	// Before is -1 if there was no offset.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// LocalGroup is a group as its coordinator has it in memory. Nodes ask one another for it.
type LocalGroup struct {
	Group string `json:"group"`
	State string `json:"state"`
}

// LocalOffset is where a range that the answering node leads stands at a time.
type LocalOffset struct {
	Range int32 `json:"range"`
	// Offset is that of the first record that is not older; the end where there is none.
	Offset int64 `json:"offset"`
}

// GroupHandler is implemented by a Handler that coordinates consumer groups. Group ids may be any bytes.
type GroupHandler interface {
	Groups(ctx context.Context) ([]Group, error)
	Group(ctx context.Context, id string) (*GroupDetail, error)
	// DeleteGroup and ResetOffsets go to the group's coordinator. at, if not empty, is who the asking node takes for it: another node
	// refuses instead of sending it on.
	DeleteGroup(ctx context.Context, id, at string) error
	ResetOffsets(ctx context.Context, req ResetOffsets, at string) ([]OffsetReset, error)
	// LocalGroups are those that this node coordinates.
	LocalGroups(ctx context.Context) ([]LocalGroup, error)
	// LocalOffsets looks for a time, in ms since 1970, in the ranges of a topic that this node leads, and leaves out the others.
	LocalOffsets(ctx context.Context, topicID string, at int64) ([]LocalOffset, error)
}

func groupRoutes(mux *http.ServeMux, h GroupHandler) {
	get(mux, "GET /v1/groups", func(r *http.Request) (any, error) { return list(h.Groups(r.Context())) })
	// The id is no part of the path: it may be "..".
	get(mux, "GET /v1/group", func(r *http.Request) (any, error) {
		id, err := groupID(r)
		if err != nil {
			return nil, err
		}
		return h.Group(r.Context(), id)
	})
	get(mux, "DELETE /v1/group", func(r *http.Request) (any, error) {
		id, err := groupID(r)
		if err != nil {
			return nil, err
		}
		return struct{}{}, h.DeleteGroup(r.Context(), id, r.URL.Query().Get("at"))
	})
	get(mux, "POST /v1/group/reset", func(r *http.Request) (any, error) {
		var req ResetOffsets
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if req.Group == "" || req.Topic == "" {
			return nil, Errorf(CodeInvalid, "no group or no topic is named")
		}
		return list(h.ResetOffsets(r.Context(), req, r.URL.Query().Get("at")))
	})
	get(mux, "GET /v1/local/groups", func(r *http.Request) (any, error) { return list(h.LocalGroups(r.Context())) })
	get(mux, "GET /v1/local/offsets", func(r *http.Request) (any, error) {
		at, err := strconv.ParseInt(r.URL.Query().Get("at"), 10, 64)
		if err != nil || at < 0 {
			return nil, Errorf(CodeInvalid, "at %q is no number of ms since 1970", r.URL.Query().Get("at"))
		}
		return list(h.LocalOffsets(r.Context(), r.URL.Query().Get("topic_id"), at))
	})
}

func groupID(r *http.Request) (string, error) {
	id := r.URL.Query().Get("id")
	if id == "" {
		return "", Errorf(CodeInvalid, "no group is named")
	}
	return id, nil
}

// Groups calls GET /v1/groups.
func (c *Client) Groups(ctx context.Context) ([]Group, error) {
	var out []Group
	return out, c.do(ctx, http.MethodGet, "/v1/groups", nil, &out)
}

// Group calls GET /v1/group.
func (c *Client) Group(ctx context.Context, id string) (*GroupDetail, error) {
	out := new(GroupDetail)
	return out, c.do(ctx, http.MethodGet, "/v1/group?id="+url.QueryEscape(id), nil, out)
}

// DeleteGroup calls DELETE /v1/group.
func (c *Client) DeleteGroup(ctx context.Context, id, at string) error {
	return c.do(ctx, http.MethodDelete, "/v1/group?id="+url.QueryEscape(id)+"&at="+url.QueryEscape(at), nil, &struct{}{})
}

// ResetOffsets calls POST /v1/group/reset.
func (c *Client) ResetOffsets(ctx context.Context, req ResetOffsets, at string) ([]OffsetReset, error) {
	var out []OffsetReset
	return out, c.do(ctx, http.MethodPost, "/v1/group/reset?at="+url.QueryEscape(at), req, &out)
}

// LocalGroups calls GET /v1/local/groups.
func (c *Client) LocalGroups(ctx context.Context) ([]LocalGroup, error) {
	var out []LocalGroup
	return out, c.do(ctx, http.MethodGet, "/v1/local/groups", nil, &out)
}

// LocalOffsets calls GET /v1/local/offsets.
func (c *Client) LocalOffsets(ctx context.Context, topicID string, at int64) ([]LocalOffset, error) {
	var out []LocalOffset
	return out, c.do(ctx, http.MethodGet, "/v1/local/offsets?topic_id="+url.QueryEscape(topicID)+"&at="+strconv.FormatInt(at, 10), nil, &out)
}
