package adminapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Steps of a repair, in the order in which they are taken; the last three end it.
const (
	StepQueued       = "queued"
	StepSealing      = "sealing"
	StepTransferring = "transferring"
	StepAdopting     = "adopting"
	StepCatchingUp   = "catching-up"
	StepPromoting    = "promoting"
	StepDone         = "done"
	StepFailed       = "failed"
	StepCancelled    = "cancelled"
)

// Outcomes of a repair.
const (
	// OutcomeWhole: read back from the destination: at the floor, and voting.
	OutcomeWhole = "whole"
	// OutcomeGap: it ended, and offsets are missing at the destination; Gap counts them, Cause says why.
	OutcomeGap = "gap"
	// OutcomeNothingToRepair: the replica was whole before.
	OutcomeNothingToRepair = "nothing-to-repair"
	// OutcomeRefused: fenced, not allowed, never written, or nothing to repair from; Cause says which.
	OutcomeRefused   = "refused"
	OutcomeFailed    = "failed"
	OutcomeCancelled = "cancelled"
	// OutcomePlanned is a dry run's: nothing was started.
	OutcomePlanned = "planned"
)

// Repair is one repair job, or the plan of one. Every node answers the same.
type Repair struct {
	// ID is 0 in a plan.
	ID uint64 `json:"id"`
	// Range is TOPIC/N.
	Range       string `json:"range"`
	TopicID     string `json:"topic_id"`
	Destination string `json:"destination"`
	// Replaces is the node whose replica leaves when this one votes; empty if none does.
	Replaces string `json:"replaces,omitempty"`
	// Origin is operator, heal, drain or replace; Reason says why it was started.
	Origin   string `json:"origin"`
	Reason   string `json:"reason,omitempty"`
	SealTail bool   `json:"seal_tail"`
	// InPlace: damaged segments of a replica that is whole otherwise are replaced one by one.
	InPlace bool `json:"in_place"`
	// Attempts is how often it began anew, say under another leader.
	Attempts int `json:"attempts"`
	// MaxRate is in bytes a second; 0 means the default budget, which yields to clients.
	MaxRate int64 `json:"max_rate"`

	Step string `json:"step"`
	// Waiting says why it is not moving; empty while it is.
	Waiting string `json:"waiting"`
	// Sources are the nodes that bytes come, or came, from; DroppedSources those that are not believed any more.
	Sources        []string        `json:"sources"`
	DroppedSources []DroppedSource `json:"dropped_sources"`
	LastError      string          `json:"last_error"`

	// SealedEnd is where the sealed segments end that are transferred; -1 before that is known. RecordsSealed are
	// those that the repair itself sealed.
	SealedEnd     int64 `json:"sealed_end"`
	RecordsSealed int64 `json:"records_sealed"`
	// Segments and Bytes are what was transferred in the end, or is to be.
	Segments int   `json:"segments"`
	Bytes    int64 `json:"bytes"`
	// BytesDone of BytesTotal are verified and on the destination's disk.
	BytesDone      int64 `json:"bytes_done"`
	BytesTotal     int64 `json:"bytes_total"`
	BytesPerSecond int64 `json:"bytes_per_second"`
	// ETAMS is -1 while it cannot be told.
	ETAMS int64 `json:"eta_ms"`

	// ReplicaID is the destination's new replica; 0 before it has one.
	ReplicaID uint64 `json:"replica_id"`
	// Floor, LogEnd and Voter were read back from the destination; -1 before.
	Floor  int64 `json:"floor"`
	LogEnd int64 `json:"log_end"`
	// Gap is the number of offsets below the floor that the destination lacks; -1 if it was not measured.
	Gap   int64 `json:"gap"`
	Voter bool  `json:"voter"`
	// Outcome is empty before the end; Cause says why it is not OutcomeWhole.
	Outcome string `json:"outcome"`
	Cause   string `json:"cause"`

	// CreatedAt and UpdatedAt are by the clocks of the nodes that wrote them; they decide nothing.
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Ended reports whether the job has taken its last step.
func (r *Repair) Ended() bool {
	return r.Step == StepDone || r.Step == StepFailed || r.Step == StepCancelled
}

// MarshalJSON writes lists that are nil as empty ones.
func (r Repair) MarshalJSON() ([]byte, error) {
	type plain Repair
	if r.Sources == nil {
		r.Sources = []string{}
	}
	if r.DroppedSources == nil {
		r.DroppedSources = []DroppedSource{}
	}
	return json.Marshal(plain(r))
}

// DroppedSource is a source that a repair no longer believes.
type DroppedSource struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// RepairRequest is the body of POST /v1/repairs.
type RepairRequest struct {
	// Topic and Range name one range. With All they are left out, and every range that Destination has a replica
	// of that is not whole is meant.
	Topic string `json:"topic,omitempty"`
	Range int32  `json:"range"`
	All   bool   `json:"all,omitempty"`
	// Destination is required.
	Destination string `json:"destination"`
	// Replaces is the node whose replica is to leave.
	Replaces string `json:"replaces,omitempty"`
	SealTail bool   `json:"seal_tail,omitempty"`
	// Sources limits where bytes come from; empty means any whole replica.
	Sources []string `json:"sources,omitempty"`
	// MaxRate is in bytes a second; 0 means the default budget.
	MaxRate int64 `json:"max_rate,omitempty"`
	// DryRun asks for the plan alone.
	DryRun bool `json:"dry_run,omitempty"`
}

// SealRequest is the body of POST /v1/ranges/{topic}/{n}/seal.
type SealRequest struct {
	// Epoch is the lease's as the caller knows it; 0 means whatever is current.
	Epoch int32 `json:"epoch,omitempty"`
}

// SealResult says what a seal did.
type SealResult struct {
	// Range is TOPIC/N.
	Range         string `json:"range"`
	Leader        string `json:"leader"`
	Epoch         int32  `json:"epoch"`
	SealedEnd     int64  `json:"sealed_end"`
	RecordsSealed int64  `json:"records_sealed"`
	// Segments is how many sealed segments the range has now.
	Segments int `json:"segments"`
}

// Pin holds sealed segments of one node open for a transfer.
type Pin struct {
	Node string `json:"node"`
	// Range is TOPIC/N.
	Range string `json:"range"`
	ID    uint64 `json:"id"`
	// Job is the repair it was made for; 0 if none.
	Job   uint64 `json:"job,omitempty"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	// IdleMS is how long it has not been used, LimitMS when it ends for that.
	IdleMS  int64 `json:"idle_ms"`
	LimitMS int64 `json:"limit_ms"`
}

// RepairHandler is implemented by a Handler that seals and repairs.
type RepairHandler interface {
	// SubmitRepairs returns one job per range: a new one, or the one that is already under way for the same range
	// and destination, or, with OutcomeNothingToRepair and no id, what says that there is nothing to do.
	SubmitRepairs(ctx context.Context, req RepairRequest) ([]Repair, error)
	// Repairs returns the jobs that have not ended, or all that are known, newest first.
	Repairs(ctx context.Context, all bool) ([]Repair, error)
	Repair(ctx context.Context, id uint64) (*Repair, error)
	// CancelRepair returns the job as it is then; cancelling one that has ended changes nothing.
	CancelRepair(ctx context.Context, id uint64) (*Repair, error)
	// Seal returns once the sealed segment is committed and catalogued.
	Seal(ctx context.Context, topic string, n int32, req SealRequest) (*SealResult, error)
	// Pins returns what the nodes hold open for transfers.
	Pins(ctx context.Context) ([]Pin, error)
}

func repairRoutes(mux *http.ServeMux, h RepairHandler) {
	get(mux, "GET /v1/repairs", func(r *http.Request) (any, error) {
		return list(h.Repairs(r.Context(), r.URL.Query().Get("all") == "true"))
	})
	get(mux, "POST /v1/repairs", func(r *http.Request) (any, error) {
		var req RepairRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if err := req.check(); err != nil {
			return nil, err
		}
		return list(h.SubmitRepairs(r.Context(), req))
	})
	get(mux, "GET /v1/repairs/{id}", func(r *http.Request) (any, error) {
		id, err := repairID(r)
		if err != nil {
			return nil, err
		}
		return h.Repair(r.Context(), id)
	})
	get(mux, "POST /v1/repairs/{id}/cancel", func(r *http.Request) (any, error) {
		id, err := repairID(r)
		if err != nil {
			return nil, err
		}
		return h.CancelRepair(r.Context(), id)
	})
	get(mux, "POST /v1/ranges/{topic}/{n}/seal", func(r *http.Request) (any, error) {
		n, err := rangeIndex(r)
		if err != nil {
			return nil, err
		}
		var req SealRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if req.Epoch < 0 {
			return nil, Errorf(CodeInvalid, "epoch %d: want one from 1, or 0 for the current one", req.Epoch)
		}
		return h.Seal(r.Context(), r.PathValue("topic"), n, req)
	})
	get(mux, "GET /v1/pins", func(r *http.Request) (any, error) { return list(h.Pins(r.Context())) })
}

// check says which field makes no sense.
func (req *RepairRequest) check() error {
	switch {
	case req.Destination == "":
		return Errorf(CodeInvalid, "no destination").WithHint("say --node DEST")
	case req.All == (req.Topic != ""):
		return Errorf(CodeInvalid, "topic %q with all %t: want one range or all", req.Topic, req.All).WithHint("say TOPIC/N --node DEST, or --node DEST --all")
	case req.Range < 0:
		return Errorf(CodeInvalid, "range %d: want a number from 0", req.Range).WithHint("name a range as TOPIC/N")
	case req.MaxRate < 0:
		return Errorf(CodeInvalid, "max_rate %d: want bytes a second, or 0 for the default budget", req.MaxRate)
	case req.Replaces == req.Destination:
		return Errorf(CodeInvalid, "node %q cannot replace itself", req.Destination).WithHint("leave --replace out to repair the replica where it is")
	}
	for _, s := range req.Sources {
		if s == "" || s == req.Destination {
			return Errorf(CodeInvalid, "source %q of a repair of %q: want another node", s, req.Destination)
		}
	}
	return nil
}

func repairID(r *http.Request) (uint64, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil || id == 0 {
		return 0, Errorf(CodeInvalid, "repair %q: want a number from 1", r.PathValue("id")).WithHint("vtopctl repair list --all shows them")
	}
	return id, nil
}

// SubmitRepairs calls POST /v1/repairs.
func (c *Client) SubmitRepairs(ctx context.Context, req RepairRequest) ([]Repair, error) {
	var out []Repair
	return out, c.do(ctx, http.MethodPost, "/v1/repairs", req, &out)
}

// Repairs calls GET /v1/repairs.
func (c *Client) Repairs(ctx context.Context, all bool) ([]Repair, error) {
	var out []Repair
	path := "/v1/repairs"
	if all {
		path += "?all=true"
	}
	return out, c.do(ctx, http.MethodGet, path, nil, &out)
}

// Repair calls GET /v1/repairs/{id}.
func (c *Client) Repair(ctx context.Context, id uint64) (*Repair, error) {
	out := new(Repair)
	return out, c.do(ctx, http.MethodGet, repairPath(id), nil, out)
}

// CancelRepair calls POST /v1/repairs/{id}/cancel.
func (c *Client) CancelRepair(ctx context.Context, id uint64) (*Repair, error) {
	out := new(Repair)
	return out, c.do(ctx, http.MethodPost, repairPath(id)+"/cancel", nil, out)
}

// Seal calls POST /v1/ranges/{topic}/{n}/seal.
func (c *Client) Seal(ctx context.Context, topic string, n int32, req SealRequest) (*SealResult, error) {
	out := new(SealResult)
	return out, c.do(ctx, http.MethodPost, rangePath("/v1/ranges", topic, n)+"/seal", req, out)
}

// Pins calls GET /v1/pins.
func (c *Client) Pins(ctx context.Context) ([]Pin, error) {
	var out []Pin
	return out, c.do(ctx, http.MethodGet, "/v1/pins", nil, &out)
}

func repairPath(id uint64) string { return "/v1/repairs/" + strconv.FormatUint(id, 10) }
