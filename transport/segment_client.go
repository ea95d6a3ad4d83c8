package transport

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// silence is how long a source may send nothing before it is given up.
const silence = bodyTimeout

// Fetched is what a segment request brought.
type Fetched struct {
	// Bytes arrived, in order from the offset that was asked for; under an error perhaps some all the same.
	Bytes int
	// Size is that of the whole segment at the source; 0 under an error before its answer.
	Size int64
	// Pressure is the source's word for how busy it is, 0 to 100, or PressureUnknown.
	Pressure int
}

// FetchRange reads len(buf) bytes of a sealed segment, from off, into buf. The caller verifies them (I9). After
// an error the first Fetched.Bytes of buf are what came, and the rest can be asked for, here or elsewhere: a
// connection that broke gives ErrCut, a source that sent nothing for half a minute vtop.ErrTimeout, a refusal
// what the source said. An answer of another root, size or range than was asked for is refused with
// ErrWrongRoot or ErrInvalid. No memory is set aside for what the source claims. Per node, 8 requests run at a
// time, on connections of their own; more wait.
func (c *Client) FetchRange(ctx context.Context, to Target, seg SegmentRef, off int64, buf []byte) (Fetched, error) {
	var out Fetched
	if off < 0 || len(buf) == 0 || off > MaxSegmentSize {
		return out, refusef(ErrInvalid, "segment %d: %d bytes from %d", seg.Base, len(buf), off)
	}
	err := c.fetch(ctx, to, seg, false, fmt.Sprintf("bytes=%d-%d", off, off+int64(len(buf))-1), func(resp *http.Response, body io.Reader) error {
		at, n, size, err := contentRange(resp.Header.Get("Content-Range"))
		if err != nil {
			return err
		}
		if at != off || n != int64(len(buf)) || resp.ContentLength != n || seg.Size != 0 && size != seg.Size {
			return refusef(ErrInvalid, "answer has %d bytes from %d, length %d, of a segment of %d; want %d from %d of %d",
				n, at, resp.ContentLength, size, len(buf), off, seg.Size)
		}
		out.Size, out.Pressure = size, pressureOf(resp.Header)
		out.Bytes, err = io.ReadFull(body, buf)
		return err
	})
	return out, err
}

// FetchManifest reads the manifest of a segment, encoded, of at most limit bytes. The caller decodes it and
// compares its root with the catalogue's (I9). Memory grows with what arrives. Errors are as FetchRange's.
func (c *Client) FetchManifest(ctx context.Context, to Target, seg SegmentRef, limit int) ([]byte, error) {
	var out bytes.Buffer
	err := c.fetch(ctx, to, seg, true, "", func(resp *http.Response, body io.Reader) error {
		want := resp.ContentLength
		if want < 1 || want > int64(limit) {
			return refusef(ErrInvalid, "manifest of %d bytes, want 1 to %d", want, limit)
		}
		n, err := out.ReadFrom(body)
		if err == nil && n != want {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// fetch makes one segment request and hands a believable answer to take.
func (c *Client) fetch(ctx context.Context, to Target, seg SegmentRef, manifest bool, span string, take func(*http.Response, io.Reader) error) error {
	what := fmt.Sprintf("segment %d of range %s from %s", seg.Base, seg.Range, to)
	if err := seg.check(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, targetKey{}, to))
	defer cancel(nil)
	watch := time.AfterFunc(c.silence, func() {
		cancel(fmt.Errorf("%w: nothing came for %s", vtop.ErrTimeout, c.silence))
	})
	defer watch.Stop()
	path, query := seg.url(manifest)
	req := (&http.Request{
		Method: http.MethodGet, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		URL: &url.URL{Scheme: c.segments.scheme, Path: path, RawQuery: query},
	}).WithContext(ctx)
	want := http.StatusOK
	if span != "" {
		req.Header.Set("Range", span)
		want = http.StatusPartialContent
	}
	resp, err := c.segments.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", what, fetchError(ctx, err))
	}
	err = believe(resp, seg, want)
	if err == nil {
		err = take(resp, &watched{resp.Body, watch, c.silence})
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, fetchError(ctx, err))
		cancel(nil) // there may be more to come: the connection is not used again
	}
	_ = resp.Body.Close() // what counts was read
	return err
}

// believe checks that an answer is the segment's, or reads what the refusal says.
func believe(resp *http.Response, seg SegmentRef, want int) error {
	if resp.StatusCode != want {
		return segmentRefusal(resp)
	}
	if tag := `"` + hex.EncodeToString(seg.Root[:]) + `"`; resp.Header.Get("ETag") != tag {
		return refusef(ErrWrongRoot, "answer is tagged %.80q, want %s", resp.Header.Get("ETag"), tag)
	}
	return nil
}

func segmentRefusal(resp *http.Response) error {
	if resp.Header.Get("Content-Type") != errorType {
		return refusef(ErrInvalid, "answer is %.80q, which vtopd would not say", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxError+1))
	if err != nil {
		return err
	}
	return decodeRefusal(body, resp.Status)
}

// decodeRefusal reads the body of a refused segment request. It always returns an error.
func decodeRefusal(body []byte, status string) error {
	detail := new(peerpb.ErrorDetail)
	if len(body) > maxError || proto.Unmarshal(body, detail) != nil || detail.GetCode() == peerpb.Code_CODE_UNSPECIFIED {
		return refusef(ErrInvalid, "answer is %.80q with a reason of %d bytes that cannot be read", status, len(body))
	}
	return errorOfDetail(detail)
}

// fetchError gives a failed segment request its identity.
func fetchError(ctx context.Context, err error) error {
	var peer *PeerError
	switch {
	case errors.As(err, &peer) || errors.Is(err, ErrUnreachable):
		return err
	case ctx.Err() == nil:
		if refused := certificateRefused(err); refused != nil {
			return refused
		}
		return fmt.Errorf("%w: %w", ErrCut, err)
	case errors.Is(context.Cause(ctx), vtop.ErrTimeout):
		return context.Cause(ctx) // the silence; or a caller who says the same
	case errors.Is(err, ctx.Err()):
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// watched puts the silence off with everything that arrives.
type watched struct {
	io.Reader
	watch   *time.Timer
	silence time.Duration
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.watch.Reset(w.silence)
	}
	return n, err
}

func pressureOf(h http.Header) int {
	n, err := strconv.Atoi(h.Get(headerPressure))
	if err != nil || n < 0 || n > 100 {
		return PressureUnknown
	}
	return n
}

// SealTail closes the tail of a range at its leader. An answer that contradicts itself is refused with
// ErrInvalid; read the snapshot with SnapshotFrom.
func (c *Client) SealTail(ctx context.Context, to Target, req *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error) {
	resp, err := call(ctx, to, "seal tail", req, c.bulk.repair.SealTail)
	if err != nil {
		return nil, err
	}
	if resp.GetRecordsSealed() < 0 || resp.GetSealedEnd() != resp.GetSnapshot().GetSealedEnd() {
		return nil, refusef(ErrInvalid, "%s sealed %d records up to %d, its snapshot ends at %d", to,
			resp.GetRecordsSealed(), resp.GetSealedEnd(), resp.GetSnapshot().GetSealedEnd())
	}
	return resp, nil
}

// PinSegments takes a snapshot of the sealed segments of a range at its leader.
func (c *Client) PinSegments(ctx context.Context, to Target, req *peerpb.PinSegmentsRequest) (*peerpb.PinSegmentsResponse, error) {
	return call(ctx, to, "pin segments", req, c.bulk.repair.PinSegments)
}

// ReleasePin ends a pin.
func (c *Client) ReleasePin(ctx context.Context, to Target, req *peerpb.ReleasePinRequest) (*peerpb.ReleasePinResponse, error) {
	return call(ctx, to, "release pin", req, c.control.repair.ReleasePin)
}

// AddLearner asks a range's leader for a learner.
func (c *Client) AddLearner(ctx context.Context, to Target, req *peerpb.AddLearnerRequest) (*peerpb.AddLearnerResponse, error) {
	return call(ctx, to, "add learner", req, c.control.repair.AddLearner)
}

// ReportDamage tells a source what it sent.
func (c *Client) ReportDamage(ctx context.Context, to Target, req *peerpb.ReportDamageRequest) (*peerpb.ReportDamageResponse, error) {
	return call(ctx, to, "report damage", req, c.control.repair.ReportDamage)
}
