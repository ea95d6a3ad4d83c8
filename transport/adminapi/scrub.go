package adminapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Verdicts of a scrub.
const (
	ScrubOK = "ok"
	// ScrubBad: the bytes differ from the root in the catalogue, or cannot be read.
	ScrubBad = "bad"
	// ScrubUnknown: there was nothing to compare with, or nobody answered. It is never counted as ok (I12).
	ScrubUnknown = "unknown"
)

// ScrubRequest is the body of POST /v1/scrub. Without a topic all ranges are meant.
type ScrubRequest struct {
	Topic string `json:"topic,omitempty"`
	// Range is that of one range of the topic; -1 means all of them.
	Range int32 `json:"range"`
	// MaxRate is in bytes a second and node; 0 means the node's own pace.
	MaxRate int64 `json:"max_rate,omitempty"`
}

// ScrubVerdict is what was found of one segment of one replica.
type ScrubVerdict struct {
	// Range is TOPIC/N.
	Range     string `json:"range"`
	Node      string `json:"node"`
	ReplicaID uint64 `json:"replica_id"`
	Base      int64  `json:"base"`
	End       int64  `json:"end"`
	Bytes     int64  `json:"bytes"`
	// Verdict is ok, bad or unknown; Reason says why it is not ok.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	// Want is the root in the catalogue, Found that of the bytes; empty if there was none.
	Want  string `json:"want,omitempty"`
	Found string `json:"found,omitempty"`
}

// ScrubSummary counts the verdicts.
type ScrubSummary struct {
	OK      int   `json:"ok"`
	Bad     int   `json:"bad"`
	Unknown int   `json:"unknown"`
	Bytes   int64 `json:"bytes"`
}

// Add counts one verdict. A word that is not known counts as unknown.
func (s *ScrubSummary) Add(v ScrubVerdict) {
	s.Bytes += v.Bytes
	switch v.Verdict {
	case ScrubOK:
		s.OK++
	case ScrubBad:
		s.Bad++
	default:
		s.Unknown++
	}
}

// scrubLine is one line of the answer, which is JSON lines: verdicts, now and then an empty object to show that
// somebody is at work, and at the end a summary or an error. An answer without such an end was cut off.
type scrubLine struct {
	Verdict *ScrubVerdict `json:"verdict,omitempty"`
	Summary *ScrubSummary `json:"summary,omitempty"`
	Error   *Error        `json:"error,omitempty"`
}

// Times and sizes of an answer in lines.
const (
	scrubPulse   = 5 * time.Second
	scrubSilence = time.Minute
	maxScrubLine = 64 << 10
	maxReason    = 4 << 10
)

// ScrubHandler is implemented by a Handler that reads replicas to compare them with the catalogue.
type ScrubHandler interface {
	// Scrub calls found for each segment of each replica meant, in any order, one call at a time. It has no time
	// limit but ctx. It stops with found's error.
	Scrub(ctx context.Context, req ScrubRequest, found func(ScrubVerdict) error) error
	// LocalScrub does so for this node's replicas alone; other nodes ask for it.
	LocalScrub(ctx context.Context, req ScrubRequest, found func(ScrubVerdict) error) error
}

func scrubRoutes(mux *http.ServeMux, h ScrubHandler) {
	mux.HandleFunc("POST /v1/scrub", func(w http.ResponseWriter, r *http.Request) { serveScrub(w, r, h.Scrub) })
	mux.HandleFunc("POST /v1/local/scrub", func(w http.ResponseWriter, r *http.Request) { serveScrub(w, r, h.LocalScrub) })
}

type scrub func(ctx context.Context, req ScrubRequest, found func(ScrubVerdict) error) error

func serveScrub(w http.ResponseWriter, r *http.Request, run scrub) {
	var req ScrubRequest
	err := decode(r, &req)
	if err == nil && (req.Range < -1 || req.MaxRate < 0 || req.Topic == "" && req.Range > -1) {
		err = Errorf(CodeInvalid, "topic %q, range %d, max_rate %d: want a topic, -1 for all of its ranges, and a rate from 0", req.Topic, req.Range, req.MaxRate)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// The server's own read deadline would end the context in the middle of a long answer.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	out := &lines{w: w, ctl: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	var pulse sync.WaitGroup
	pulse.Go(func() { out.pulse(ctx, cancel) })
	var sum ScrubSummary
	err = run(ctx, req, func(v ScrubVerdict) error {
		sum.Add(v)
		v.Reason = v.Reason[:min(len(v.Reason), maxReason)]
		return out.write(scrubLine{Verdict: &v})
	})
	cancel()
	pulse.Wait()
	last := scrubLine{Summary: &sum}
	if err != nil {
		e := *asError(err)
		e.Message = e.Message[:min(len(e.Message), maxReason)]
		last = scrubLine{Error: &e}
	}
	_ = out.write(last) // the client is gone: nobody is left to be told
}

// lines writes JSON lines, each flushed, to a client that must take them.
type lines struct {
	ctl *http.ResponseController
	mu  sync.Mutex
	w   http.ResponseWriter
}

func (l *lines) write(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.ctl.SetWriteDeadline(time.Now().Add(scrubSilence)) // a dead connection says so when it is written
	_, err = l.w.Write(append(data, '\n'))
	return errors.Join(err, l.ctl.Flush())
}

// pulse writes an empty object now and then, and calls gone if nobody takes it.
func (l *lines) pulse(ctx context.Context, gone func()) {
	tick := time.NewTicker(scrubPulse)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if l.write(scrubLine{}) != nil {
				gone()
				return
			}
		}
	}
}

// Scrub calls POST /v1/scrub, and found for each verdict as it arrives, in this goroutine. It ends early with
// found's error.
func (c *Client) Scrub(ctx context.Context, req ScrubRequest, found func(ScrubVerdict) error) (*ScrubSummary, error) {
	return c.scrub(ctx, "/v1/scrub", req, found)
}

// LocalScrub calls POST /v1/local/scrub.
func (c *Client) LocalScrub(ctx context.Context, req ScrubRequest, found func(ScrubVerdict) error) (*ScrubSummary, error) {
	return c.scrub(ctx, "/v1/local/scrub", req, found)
}

func (c *Client) scrub(ctx context.Context, path string, req ScrubRequest, found func(ScrubVerdict) error) (*ScrubSummary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := time.AfterFunc(scrubSilence, cancel)
	defer watch.Stop()
	body, err := c.open(ctx, path, req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	in := bufio.NewScanner(body)
	in.Buffer(nil, maxScrubLine)
	for ; in.Scan(); watch.Reset(scrubSilence) {
		watch.Stop()
		var line scrubLine
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			return nil, Errorf(CodeInternal, "answer of %s is not of this version: %v", c.base, err)
		}
		switch {
		case line.Error != nil:
			return nil, line.Error
		case line.Summary != nil:
			return line.Summary, nil
		case line.Verdict != nil:
			if err := found(*line.Verdict); err != nil {
				return nil, err
			}
		}
	}
	err = in.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return nil, Errorf(CodeUnreachable, "answer of %s broke off: %v", c.base, err).WithHint("what was listed so far is true; start it again for the rest")
}
