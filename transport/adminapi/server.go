package adminapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Hooks are the parts of the admin port that are not this API. A nil hook answers 404.
type Hooks struct {
	// Healthz answers 200 while the process works, Readyz while it serves; Metrics is Prometheus' format.
	Healthz, Readyz, Metrics http.Handler
	// Page answers all other paths.
	Page http.Handler
}

const (
	// maxBody bounds a request body in bytes.
	maxBody = 1 << 20
	// maxCallTime bounds one call.
	maxCallTime = time.Minute
)

// NewServer is the admin port's handler. Identity and exposure are the listener's business: serve it through
// Serve, or behind TLS from tlsid.
func NewServer(h Handler, hooks Hooks) http.Handler {
	mux := http.NewServeMux()
	get(mux, "GET /v1/status", func(r *http.Request) (any, error) { return h.Status(r.Context()) })
	get(mux, "GET /v1/nodes", func(r *http.Request) (any, error) { return list(h.Nodes(r.Context())) })
	get(mux, "GET /v1/topics", func(r *http.Request) (any, error) { return list(h.Topics(r.Context())) })
	get(mux, "GET /v1/topics/{topic}", func(r *http.Request) (any, error) { return h.Topic(r.Context(), r.PathValue("topic")) })
	get(mux, "GET /v1/leases", func(r *http.Request) (any, error) {
		return list(h.Leases(r.Context(), r.URL.Query().Get("topic")))
	})
	get(mux, "POST /v1/topics", func(r *http.Request) (any, error) {
		var req CreateTopic
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		return h.CreateTopic(r.Context(), req)
	})
	get(mux, "DELETE /v1/topics/{topic}", func(r *http.Request) (any, error) {
		return struct{}{}, h.DeleteTopic(r.Context(), r.PathValue("topic"))
	})
	get(mux, "GET /v1/leases/{topic}/{n}", func(r *http.Request) (any, error) {
		n, err := rangeIndex(r)
		if err != nil {
			return nil, err
		}
		return h.Lease(r.Context(), r.PathValue("topic"), n)
	})
	get(mux, "POST /v1/leases/{topic}/{n}/transfer", func(r *http.Request) (any, error) {
		n, err := rangeIndex(r)
		if err != nil {
			return nil, err
		}
		var req Transfer
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if req.To == "" {
			return nil, Errorf(CodeInvalid, "no node to transfer to").WithHint("say --to NODE")
		}
		return h.TransferLease(r.Context(), r.PathValue("topic"), n, req.To)
	})
	get(mux, "GET /v1/segments/{topic}/{n}", func(r *http.Request) (any, error) {
		n, err := rangeIndex(r)
		if err != nil {
			return nil, err
		}
		return list(h.Segments(r.Context(), r.PathValue("topic"), n, r.URL.Query().Get("node")))
	})
	if local, ok := h.(LocalHandler); ok {
		localRoutes(mux, local)
	}
	extraRoutes(mux, h)
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, Errorf(CodeNotFound, "no such call: %s %s", r.Method, r.URL.Path).WithHint("vtopctl and vtopd of the same version know the same calls"))
	})
	for path, hook := range map[string]http.Handler{"/healthz": hooks.Healthz, "/readyz": hooks.Readyz, "/metrics": hooks.Metrics, "/": hooks.Page} {
		if hook != nil {
			mux.Handle(path, hook)
		}
	}
	return mux
}

// extraRoutes registers what a Handler may be able to do besides.
func extraRoutes(mux *http.ServeMux, h Handler) {
	if h, ok := h.(RepairHandler); ok {
		repairRoutes(mux, h)
	}
	if h, ok := h.(NodeHandler); ok {
		nodeRoutes(mux, h)
	}
	if h, ok := h.(HealHandler); ok {
		healRoutes(mux, h)
	}
	if h, ok := h.(RecoverHandler); ok {
		recoverRoutes(mux, h)
	}
	if h, ok := h.(ScrubHandler); ok {
		scrubRoutes(mux, h)
	}
	if h, ok := h.(GroupHandler); ok {
		groupRoutes(mux, h)
	}
	if h, ok := h.(StateHandler); ok {
		stateRoutes(mux, h)
	}
	if h, ok := h.(DrillHandler); ok {
		drillRoutes(mux, h)
	}
}

// get registers one call: its answer, or its error, as JSON.
func get(mux *http.ServeMux, pattern string, call func(r *http.Request) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), maxCallTime)
		defer cancel()
		out, err := call(r.WithContext(ctx))
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, out)
	})
}

// list makes an empty list out of nil, so that JSON never says null.
func list[T any](items []T, err error) (any, error) {
	if items == nil {
		items = []T{}
	}
	return items, err
}

func rangeIndex(r *http.Request) (int32, error) {
	n, err := strconv.ParseInt(r.PathValue("n"), 10, 32)
	if err != nil || n < 0 {
		return 0, Errorf(CodeInvalid, "range %q: want a number from 0", r.PathValue("n")).WithHint("name a range as TOPIC/N")
	}
	return int32(n), nil
}

func decode(r *http.Request, into any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return Errorf(CodeInvalid, "request body: %v", err)
	}
	if len(body) > maxBody {
		return Errorf(CodeInvalid, "request body is above %d bytes", maxBody)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return Errorf(CodeInvalid, "request body: %v", err)
	}
	return nil
}

func writeError(w http.ResponseWriter, err error) {
	e := asError(err)
	status, ok := statusOf[e.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	writeJSON(w, status, e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, fmt.Appendf(nil, `{"code":"internal","message":%q}`, err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client is gone: nobody is left to be told
}
