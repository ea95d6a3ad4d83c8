package transport

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
)

const (
	// maxTransfers bounds segment requests being answered at a time, each of which holds one buffer of
	// SegmentStep bytes; more are refused with vtop.ErrOverloaded.
	maxTransfers = 32
	// stepTimeout bounds the sending of one step to a caller that takes nothing.
	stepTimeout = bodyTimeout

	headerPressure = "Vtop-Pressure"
	// errorType is the content type of a refused segment request: an encoded ErrorDetail.
	errorType = "application/vnd.vtop.error"
	// maxErrorText and maxError bound its text and the whole, in bytes.
	maxErrorText = 4 << 10
	maxError     = 8 << 10
)

// serveSegments answers GET and HEAD below segmentPrefix. There is no time limit on the whole, since a segment
// may be large and the caller slow on purpose: each step has one.
func (m *Mux) serveSegments(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header(), m.opt.Self(), "")
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		m.refuseSegment(w, errors.New("segment request on a connection that is not the peer port's"))
		return
	}
	from, err := m.judge(c, segmentPrefix, r.Header)
	if err != nil {
		m.refusals.report(m.log.With("call", segmentPrefix, "node", from.Name), "call refused", c.RemoteAddr(), err)
		m.refuseSegment(w, err)
		return
	}
	defer m.transfers.Add(-1) // also when the connection is cut by a panic
	if m.transfers.Add(1) > maxTransfers {
		err = refusef(vtop.ErrOverloaded, "node %q is sending %d segments", m.opt.Self().Name, maxTransfers)
	} else {
		err = m.serveSegment(w, r, from)
	}
	if err != nil {
		m.log.Debug("segment refused", "node", from.Name, "url", r.URL, "error", err)
		m.refuseSegment(w, err)
	}
}

// serveSegment returns an error only before anything was answered.
func (m *Mux) serveSegment(w http.ResponseWriter, r *http.Request, from Caller) error {
	if r.Body != http.NoBody {
		// The server reads some of it afterwards; a dead connection says so then.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		return refusef(ErrInvalid, "a segment request has no body")
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return refusef(ErrInvalid, "segments are read only: %.20s", r.Method)
	}
	seg, manifest, err := segmentFromURL(r.URL.Path, r.URL.RawQuery)
	if err != nil {
		return err
	}
	bytes, err := m.openSegment(r.Context(), from, seg, manifest)
	if err != nil {
		return err
	}
	if bytes.Release != nil {
		defer bytes.Release()
	}
	off, n, err := byteRange(r.Header.Get("Range"), bytes.Size)
	if err != nil {
		return err
	}
	return m.sendSegment(w, r, seg, bytes, off, n)
}

func (m *Mux) openSegment(ctx context.Context, from Caller, seg SegmentRef, manifest bool) (*SegmentBytes, error) {
	h := *m.handler.Load()
	open := h.OpenSegment
	if manifest {
		open = h.OpenManifest
	}
	bytes, err := open(ctx, from, seg)
	if err != nil {
		return nil, err
	}
	if bytes == nil || bytes.Bytes == nil || bytes.Size < 1 || bytes.Size > MaxSegmentSize {
		if bytes != nil && bytes.Release != nil {
			bytes.Release()
		}
		return nil, fmt.Errorf("segment %d of range %s was opened without bytes", seg.Base, seg.Range)
	}
	return bytes, nil
}

// sendSegment reads the first step before it answers, so that what cannot be read is refused with a reason. A
// later failure cuts the connection: the caller asks again from there, and is told why.
func (m *Mux) sendSegment(w http.ResponseWriter, r *http.Request, seg SegmentRef, bytes *SegmentBytes, off, n int64) error {
	buf := getBuffer(SegmentStep)
	defer buf.put()
	step := buf.bytes[:min(n, SegmentStep-off%SegmentStep)]
	if r.Method != http.MethodHead {
		if err := readStep(bytes.Bytes, step, off); err != nil {
			return err
		}
	}
	status := http.StatusOK
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(n, 10))
	header.Set("Accept-Ranges", "bytes")
	header.Set("ETag", `"`+hex.EncodeToString(seg.Root[:])+`"`)
	header.Set(headerPressure, strconv.Itoa(min(max(bytes.Pressure, PressureUnknown), 100)))
	if r.Header.Get("Range") != "" {
		status = http.StatusPartialContent
		header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, bytes.Size))
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	ctl := http.NewResponseController(w)
	for {
		_ = ctl.SetWriteDeadline(time.Now().Add(stepTimeout)) // a dead connection says so when it is written
		if _, err := w.Write(step); err != nil {
			return nil // the caller is gone, or takes nothing: nobody is left to be told
		}
		off, n = off+int64(len(step)), n-int64(len(step))
		if n == 0 {
			return nil
		}
		step = buf.bytes[:min(n, SegmentStep)]
		err := r.Context().Err()
		if err == nil {
			err = readStep(bytes.Bytes, step, off)
		}
		if err != nil {
			m.log.Warn("segment cut off while it was sent", "range", seg.Range, "base", seg.Base, "at", off, "error", err)
			panic(http.ErrAbortHandler)
		}
	}
}

// readStep fills p.
func readStep(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = fmt.Errorf("%w: %d bytes at %d, want %d", io.ErrUnexpectedEOF, n, off, len(p))
	}
	return err
}

func (m *Mux) refuseSegment(w http.ResponseWriter, err error) {
	detail := detailOf(m.opt.Self().Name, err)
	if len(detail.Message) > maxErrorText {
		detail.Message = detail.Message[:maxErrorText]
	}
	detail.Message = strings.ToValidUTF8(detail.Message, "?")
	body, merr := proto.Marshal(detail)
	if merr != nil {
		body = nil // the status has to do
	}
	w.Header().Set("Content-Type", errorType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(statusOf(err))
	_, _ = w.Write(body) // the caller is gone: nobody is left to be told
}

// statusOf is what a refused segment request looks like to HTTP; vtop itself reads the ErrorDetail.
func statusOf(err error) int {
	switch rowOf(err).http {
	case connect.CodeInvalidArgument:
		return http.StatusBadRequest
	case connect.CodePermissionDenied:
		return http.StatusForbidden
	case connect.CodeNotFound:
		return http.StatusNotFound
	case connect.CodeOutOfRange:
		return http.StatusRequestedRangeNotSatisfiable
	case connect.CodeAborted, connect.CodeFailedPrecondition:
		return http.StatusConflict
	case connect.CodeResourceExhausted, connect.CodeUnavailable:
		return http.StatusServiceUnavailable
	case connect.CodeUnimplemented:
		return http.StatusNotImplemented
	case connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
