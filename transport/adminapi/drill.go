package adminapi

import (
	"context"
	"net/http"
	"time"
)

// Faults that a node does to itself when a drill asks.
const (
	// DrillKill: the process ends by SIGKILL, in the middle of whatever it does.
	DrillKill = "kill"
	// DrillPause: the process is stopped (SIGSTOP) and goes on after PauseMS.
	DrillPause = "pause"
	// DrillRestart: the process ends as on SIGTERM.
	DrillRestart = "restart"
	// DrillWipe: the directory of one replica is taken away, then as DrillKill.
	DrillWipe = "wipe"
)

// MaxDrillPause bounds DrillPause.
const MaxDrillPause = time.Minute

// DrillRequest is the body of POST /v1/local/drill.
type DrillRequest struct {
	// Node is who is meant; another node refuses.
	Node string `json:"node"`
	// Fault is kill, pause, restart or wipe.
	Fault string `json:"fault"`
	// PauseMS is for how long a pause is, from 1 to MaxDrillPause in milliseconds.
	PauseMS int64 `json:"pause_ms,omitempty"`
	// Topic and Range name the replica that a wipe is of.
	Topic string `json:"topic,omitempty"`
	Range int32  `json:"range,omitempty"`
}

// DrillResult says what is about to happen to the node that answers.
type DrillResult struct {
	Node        string `json:"node"`
	Fault       string `json:"fault"`
	PID         int    `json:"pid"`
	Incarnation uint64 `json:"incarnation"`
	// InMS is how long after the answer the node strikes itself.
	InMS int64 `json:"in_ms"`
	// ReturnsBy says who starts it again: a supervisor, or itself.
	ReturnsBy string `json:"returns_by"`
}

// LocalDrills is what a node that was started with --allow-drills tells of itself.
type LocalDrills struct {
	ReturnsBy string `json:"returns_by"`
}

// DrillHandler is implemented by a Handler of a process that drills may strike.
type DrillHandler interface {
	// Drill answers first and strikes its own process afterwards. It refuses with CodeNotAllowed unless the process was
	// started for it, and with CodeConflict while another strike is under way.
	Drill(ctx context.Context, req DrillRequest) (*DrillResult, error)
}

func drillRoutes(mux *http.ServeMux, h DrillHandler) {
	get(mux, "POST /v1/local/drill", func(r *http.Request) (any, error) {
		var req DrillRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if err := req.check(); err != nil {
			return nil, err
		}
		return h.Drill(r.Context(), req)
	})
}

// check says which field makes no sense.
func (req *DrillRequest) check() error {
	if req.Node == "" {
		return Errorf(CodeInvalid, "no node is named")
	}
	switch req.Fault {
	case DrillKill, DrillRestart:
	case DrillPause:
		if req.PauseMS < 1 || req.PauseMS > MaxDrillPause.Milliseconds() {
			return Errorf(CodeInvalid, "pause of %d ms: want 1 to %d", req.PauseMS, MaxDrillPause.Milliseconds())
		}
	case DrillWipe:
		if req.Topic == "" || req.Range < 0 {
			return Errorf(CodeInvalid, "wipe of topic %q range %d: want a topic, and a number from 0", req.Topic, req.Range)
		}
	default:
		return Errorf(CodeInvalid, "fault %q: want kill, pause, restart or wipe", req.Fault)
	}
	return nil
}

// Drill calls POST /v1/local/drill.
func (c *Client) Drill(ctx context.Context, req DrillRequest) (*DrillResult, error) {
	out := new(DrillResult)
	return out, c.do(ctx, http.MethodPost, "/v1/local/drill", req, out)
}
