package adminapi

import (
	"context"
	"net/http"
)

// RecoverRequest is the body of POST /v1/ranges/{topic}/{n}/recover, for a range that lost its majority.
type RecoverRequest struct {
	// From is the node whose replica is to be the only one.
	From string `json:"from"`
	// AcceptDataLoss must be said, unless it is a dry run.
	AcceptDataLoss bool `json:"accept_data_loss,omitempty"`
	// DryRun asks for the plan alone.
	DryRun bool `json:"dry_run,omitempty"`
	// ConfigVersion, if not 0, is the one of the plan that was agreed to; another one is refused.
	ConfigVersion uint64 `json:"config_version,omitempty"`
}

// RecoverPlan says what a recovery keeps and loses.
type RecoverPlan struct {
	// Range is TOPIC/N.
	Range     string `json:"range"`
	From      string `json:"from"`
	ReplicaID uint64 `json:"replica_id"`
	// ConfigVersion is the one that the plan was made under.
	ConfigVersion uint64 `json:"config_version"`
	// Floor is what was promised, KeepEnd what the replica has, as it said itself; -1 if it did not answer.
	Floor    int64 `json:"floor"`
	LogStart int64 `json:"log_start"`
	KeepEnd  int64 `json:"keep_end"`
	// Lost are offsets that were acknowledged, or may have been, and will be gone.
	Lost []LostOffsets `json:"lost"`
	// Voters are the present ones, and what each of them says.
	Voters []RecoverVoter `json:"voters"`
	// Warnings are what could not be found out, and better choices of From.
	Warnings []Reason `json:"warnings"`
	// Applied is false in a dry run.
	Applied bool `json:"applied"`
	// Epoch is the one from which the range goes on, once Applied.
	Epoch int32 `json:"epoch,omitempty"`
}

// LostOffsets are the offsets from From up to, not with, To.
type LostOffsets struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Promised: they were below the floor. Otherwise they may have been acknowledged; nobody is left who knows.
	Promised bool `json:"promised"`
}

// RecoverVoter is one voter of a range that lost its majority.
type RecoverVoter struct {
	Node      string `json:"node"`
	ReplicaID uint64 `json:"replica_id"`
	Alive     bool   `json:"alive"`
	// State is the replica's own word; damaged if it has all but what a bad segment holds; unknown if it did not answer.
	State string `json:"state"`
	// LogEnd is -1 if unknown.
	LogEnd int64  `json:"log_end"`
	Reason string `json:"reason,omitempty"`
}

// RecoverHandler is implemented by a Handler that recovers ranges from one replica.
type RecoverHandler interface {
	// RecoverRange returns the plan, Applied if the request was for more than a dry run.
	RecoverRange(ctx context.Context, topic string, n int32, req RecoverRequest) (*RecoverPlan, error)
}

func recoverRoutes(mux *http.ServeMux, h RecoverHandler) {
	get(mux, "POST /v1/ranges/{topic}/{n}/recover", func(r *http.Request) (any, error) {
		n, err := rangeIndex(r)
		if err != nil {
			return nil, err
		}
		var req RecoverRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if req.From == "" {
			return nil, Errorf(CodeInvalid, "no replica to recover from").WithHint("say --from NODE")
		}
		if !req.DryRun && !req.AcceptDataLoss {
			return nil, Errorf(CodeInvalid, "a recovery loses acknowledged records for ever").
				WithHint("look at it with --dry-run first, then say --accept-data-loss")
		}
		return h.RecoverRange(r.Context(), r.PathValue("topic"), n, req)
	})
}

// RecoverRange calls POST /v1/ranges/{topic}/{n}/recover.
func (c *Client) RecoverRange(ctx context.Context, topic string, n int32, req RecoverRequest) (*RecoverPlan, error) {
	out := new(RecoverPlan)
	return out, c.do(ctx, http.MethodPost, rangePath("/v1/ranges", topic, n)+"/recover", req, out)
}
