package adminapi

import (
	"context"
	"net/http"
	"time"
)

// HealStatus says what the cluster heals by itself, and what it does not.
type HealStatus struct {
	Paused bool `json:"paused"`
	// Why and Since are of the pause, by the clock of the node that was asked for it.
	Why   string    `json:"why,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// AfterMS is heal.after: how long a node must be gone.
	AfterMS int64 `json:"after_ms"`
	// Running are the repairs that healing has under way, Limit how many it and drains have at most; -1 if the Raft leader,
	// who knows, did not answer.
	Running int `json:"running"`
	Limit   int `json:"limit"`
	// Gone are nodes that are missed, with the time left until their replicas are rebuilt.
	Gone []GoneNode `json:"gone"`
	// Stuck are ranges that cannot be healed, and why.
	Stuck []Reason `json:"stuck"`
	// Repairs are those that healing started and that have not ended.
	Repairs []Repair `json:"repairs"`
}

// GoneNode is a node that is missed.
type GoneNode struct {
	Node string `json:"node"`
	// GoneMS is how long; -1 if unknown. LeftMS is until it is replaced; 0 if it is due.
	GoneMS   int64 `json:"gone_ms"`
	LeftMS   int64 `json:"left_ms"`
	Replicas int   `json:"replicas"`
}

// HealPause is the body of POST /v1/heal/pause.
type HealPause struct {
	Why string `json:"why,omitempty"`
}

// HealHandler is implemented by a Handler whose cluster heals itself. The pause is kept in the metadata: it
// outlives every node.
type HealHandler interface {
	HealStatus(ctx context.Context) (*HealStatus, error)
	PauseHeal(ctx context.Context, why string) (*HealStatus, error)
	ResumeHeal(ctx context.Context) (*HealStatus, error)
}

func healRoutes(mux *http.ServeMux, h HealHandler) {
	get(mux, "GET /v1/heal", func(r *http.Request) (any, error) { return h.HealStatus(r.Context()) })
	get(mux, "POST /v1/heal/pause", func(r *http.Request) (any, error) {
		var req HealPause
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		return h.PauseHeal(r.Context(), req.Why)
	})
	get(mux, "POST /v1/heal/resume", func(r *http.Request) (any, error) { return h.ResumeHeal(r.Context()) })
}

// HealStatus calls GET /v1/heal.
func (c *Client) HealStatus(ctx context.Context) (*HealStatus, error) {
	out := new(HealStatus)
	return out, c.do(ctx, http.MethodGet, "/v1/heal", nil, out)
}

// PauseHeal calls POST /v1/heal/pause.
func (c *Client) PauseHeal(ctx context.Context, why string) (*HealStatus, error) {
	out := new(HealStatus)
	return out, c.do(ctx, http.MethodPost, "/v1/heal/pause", HealPause{Why: why}, out)
}

// ResumeHeal calls POST /v1/heal/resume.
func (c *Client) ResumeHeal(ctx context.Context) (*HealStatus, error) {
	out := new(HealStatus)
	return out, c.do(ctx, http.MethodPost, "/v1/heal/resume", nil, out)
}
