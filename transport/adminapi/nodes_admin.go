package adminapi

import (
	"context"
	"net/http"
	"net/url"
)

// DrainRequest is the body of POST /v1/nodes/{node}/drain.
type DrainRequest struct {
	// Cancel makes a draining node active again.
	Cancel bool `json:"cancel,omitempty"`
	// DryRun asks what would leave, and where to.
	DryRun bool `json:"dry_run,omitempty"`
}

// DrainResult says how far a drain is. Draining is a state of the node: it outlives whoever asked for it.
type DrainResult struct {
	Node string `json:"node"`
	// State is active, draining or gone.
	State        string `json:"state"`
	LeasesLeft   int    `json:"leases_left"`
	ReplicasLeft int    `json:"replicas_left"`
	// Repairs are the jobs that move its replicas away.
	Repairs []uint64 `json:"repairs"`
	// Stuck says of each replica that has nowhere to go why.
	Stuck []Reason `json:"stuck"`
	// Done: nothing is left on the node; it may be stopped and removed.
	Done bool `json:"done"`
}

// Reason is one thing that stands in the way, and what to do about it.
type Reason struct {
	// Subject is TOPIC/N or a node's name.
	Subject string `json:"subject"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// RemoveResult says whether a node was taken out of the metadata.
type RemoveResult struct {
	Node    string `json:"node"`
	Removed bool   `json:"removed"`
	// Left are the leases and replicas that it still has, if it was not removed.
	Left []Reason `json:"left"`
}

// ReplaceRequest is the body of POST /v1/nodes/{node}/replace.
type ReplaceRequest struct {
	// With is the node that takes its place: another name, or the same one if a pending node claims it.
	With   string `json:"with"`
	DryRun bool   `json:"dry_run,omitempty"`
}

// ReplaceResult says what a replacement started.
type ReplaceResult struct {
	Node string `json:"node"`
	With string `json:"with"`
	// Admitted: With was a pending claimant of the name and has it now.
	Admitted bool `json:"admitted"`
	// Repairs are the jobs that rebuild the replicas.
	Repairs []Repair `json:"repairs"`
}

// SafeToStop says what the cluster would lose while a node is stopped.
type SafeToStop struct {
	Node string `json:"node"`
	// Safe: every range keeps a majority and the metadata its quorum. False also if that could not be found out.
	Safe bool `json:"safe"`
	// Reasons say why not.
	Reasons []Reason `json:"reasons"`
	// Unknown are what could not be compared.
	Unknown []Reason `json:"unknown"`
}

// NodeHandler is implemented by a Handler that moves work between nodes.
type NodeHandler interface {
	DrainNode(ctx context.Context, node string, req DrainRequest) (*DrainResult, error)
	// DrainStatus changes nothing.
	DrainStatus(ctx context.Context, node string) (*DrainResult, error)
	// RemoveNode refuses, with Removed false and what is Left, while the node has leases or replicas.
	RemoveNode(ctx context.Context, node string) (*RemoveResult, error)
	ReplaceNode(ctx context.Context, node string, req ReplaceRequest) (*ReplaceResult, error)
	SafeToStop(ctx context.Context, node string) (*SafeToStop, error)
}

func nodeRoutes(mux *http.ServeMux, h NodeHandler) {
	get(mux, "GET /v1/nodes/{node}/drain", func(r *http.Request) (any, error) { return h.DrainStatus(r.Context(), r.PathValue("node")) })
	get(mux, "POST /v1/nodes/{node}/drain", func(r *http.Request) (any, error) {
		var req DrainRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		return h.DrainNode(r.Context(), r.PathValue("node"), req)
	})
	get(mux, "DELETE /v1/nodes/{node}", func(r *http.Request) (any, error) { return h.RemoveNode(r.Context(), r.PathValue("node")) })
	get(mux, "POST /v1/nodes/{node}/replace", func(r *http.Request) (any, error) {
		var req ReplaceRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if req.With == "" {
			return nil, Errorf(CodeInvalid, "no node to replace %q with", r.PathValue("node")).WithHint("say: vtopctl node replace OLD NEW")
		}
		return h.ReplaceNode(r.Context(), r.PathValue("node"), req)
	})
	get(mux, "GET /v1/nodes/{node}/safe-to-stop", func(r *http.Request) (any, error) { return h.SafeToStop(r.Context(), r.PathValue("node")) })
}

// DrainNode calls POST /v1/nodes/{node}/drain.
func (c *Client) DrainNode(ctx context.Context, node string, req DrainRequest) (*DrainResult, error) {
	out := new(DrainResult)
	return out, c.do(ctx, http.MethodPost, nodePath(node)+"/drain", req, out)
}

// DrainStatus calls GET /v1/nodes/{node}/drain.
func (c *Client) DrainStatus(ctx context.Context, node string) (*DrainResult, error) {
	out := new(DrainResult)
	return out, c.do(ctx, http.MethodGet, nodePath(node)+"/drain", nil, out)
}

// RemoveNode calls DELETE /v1/nodes/{node}.
func (c *Client) RemoveNode(ctx context.Context, node string) (*RemoveResult, error) {
	out := new(RemoveResult)
	return out, c.do(ctx, http.MethodDelete, nodePath(node), nil, out)
}

// ReplaceNode calls POST /v1/nodes/{node}/replace.
func (c *Client) ReplaceNode(ctx context.Context, node string, req ReplaceRequest) (*ReplaceResult, error) {
	out := new(ReplaceResult)
	return out, c.do(ctx, http.MethodPost, nodePath(node)+"/replace", req, out)
}

// SafeToStop calls GET /v1/nodes/{node}/safe-to-stop.
func (c *Client) SafeToStop(ctx context.Context, node string) (*SafeToStop, error) {
	out := new(SafeToStop)
	return out, c.do(ctx, http.MethodGet, nodePath(node)+"/safe-to-stop", nil, out)
}

func nodePath(node string) string { return "/v1/nodes/" + url.PathEscape(node) }
