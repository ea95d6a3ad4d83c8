package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Words of a comparison of states.
const (
	StateSame    = "same"
	StateDiffers = "differs"
	// StateUnknown: a node did not answer, or could not be brought to the index of the others. It is never counted as same (I12).
	StateUnknown = "unknown"
)

// maxStateWait bounds how long a node waits for an index.
const maxStateWait = 10 * time.Second

// StateHash is what one node's copy of the metadata is.
type StateHash struct {
	Node string `json:"node"`
	// Index is that of the last command applied; -1 if the node did not tell.
	Index int64 `json:"index"`
	// Hash is the SHA-256 of the state at that index, in hexadecimal: nodes of one version have the same at one index.
	Hash    string `json:"hash,omitempty"`
	Version string `json:"version,omitempty"`
	// Verdict is same, differs or unknown, beside the state that most nodes have (of equally many, the first by name); Reason
	// says why it is not same.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
}

// StateHashes compares the metadata of all nodes that are not gone.
type StateHashes struct {
	// Index is the one at which they were compared; -1 if nobody answered.
	Index int64 `json:"index"`
	// Verdict is same if every node's is; else differs if one differs; else unknown.
	Verdict string `json:"verdict"`
	// Nodes are ordered by name.
	Nodes []StateHash `json:"nodes"`
}

// StateHandler is implemented by a Handler that compares what nodes have applied.
type StateHandler interface {
	StateHashes(ctx context.Context) (*StateHashes, error)
	// LocalStateHash is this node's own, at index if it comes within wait, else of the present state. Other nodes ask for it.
	LocalStateHash(ctx context.Context, index uint64, wait time.Duration) (*StateHash, error)
}

func stateRoutes(mux *http.ServeMux, h StateHandler) {
	get(mux, "GET /v1/state-hash", func(r *http.Request) (any, error) { return h.StateHashes(r.Context()) })
	get(mux, "GET /v1/local/state-hash", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		index, err := strconv.ParseUint(q.Get("index"), 10, 63)
		if err != nil {
			return nil, Errorf(CodeInvalid, "index %q: want a number from 0", q.Get("index"))
		}
		wait, err := strconv.ParseInt(q.Get("wait_ms"), 10, 64)
		if err != nil || wait < 0 || wait > maxStateWait.Milliseconds() {
			return nil, Errorf(CodeInvalid, "wait_ms %q: want a number from 0 to %d", q.Get("wait_ms"), maxStateWait.Milliseconds())
		}
		return h.LocalStateHash(r.Context(), index, time.Duration(wait)*time.Millisecond)
	})
}

// StateHashes calls GET /v1/state-hash.
func (c *Client) StateHashes(ctx context.Context) (*StateHashes, error) {
	out := new(StateHashes)
	return out, c.do(ctx, http.MethodGet, "/v1/state-hash", nil, out)
}

// LocalStateHash calls GET /v1/local/state-hash.
func (c *Client) LocalStateHash(ctx context.Context, index uint64, wait time.Duration) (*StateHash, error) {
	out := new(StateHash)
	return out, c.do(ctx, http.MethodGet, fmt.Sprintf("/v1/local/state-hash?index=%d&wait_ms=%d", index, wait.Milliseconds()), nil, out)
}
