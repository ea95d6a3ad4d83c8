package transport

import (
	"encoding/hex"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/vtop-log/vtop"
)

// A sealed segment is a resource below segmentPrefix:
//
//	/segments/{topic id}/{index}/{base, 20 digits}.log       its bytes
//	/segments/{topic id}/{index}/{base, 20 digits}.manifest  its manifest
//
// with the query parameters root (64 hexadecimal digits), and pin, replica and epoch (decimal, left out if 0).
const (
	segmentPrefix  = "/segments/"
	logSuffix      = ".log"
	manifestSuffix = ".manifest"
)

// url gives path and query.
func (s SegmentRef) url(manifest bool) (path, query string) {
	suffix := logSuffix
	if manifest {
		suffix = manifestSuffix
	}
	path = fmt.Sprintf("%s%s/%d/%020d%s", segmentPrefix, s.Range.Topic, s.Range.Index, int64(s.Base), suffix)
	q := url.Values{"root": {hex.EncodeToString(s.Root[:])}}
	for name, n := range map[string]uint64{"pin": s.Pin, "replica": uint64(s.Replica), "epoch": uint64(max(s.Epoch, 0))} {
		if n != 0 {
			q.Set(name, strconv.FormatUint(n, 10))
		}
	}
	return path, q.Encode()
}

// check says whether a reference makes sense at all.
func (s SegmentRef) check() error {
	if s.Range.Topic.IsZero() || s.Range.Index < 0 || s.Base < 0 || s.Root == [32]byte{} || s.Size < 0 || s.Size > MaxSegmentSize || s.Epoch < 0 {
		return refusef(ErrInvalid, "segment %d of range %s, root %x, size %d, epoch %d: want a topic, a root, and nothing negative",
			s.Base, s.Range, s.Root, s.Size, s.Epoch)
	}
	return nil
}

// segmentFromURL is the reverse of url. There is one spelling of each reference; others are refused.
func segmentFromURL(path, query string) (s SegmentRef, manifest bool, err error) {
	wrong := func(what, got string) (SegmentRef, bool, error) {
		return SegmentRef{}, false, refusef(ErrInvalid, "segment request: %s is %.80q", what, got)
	}
	rest, ok := strings.CutPrefix(path, segmentPrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return wrong("path", path)
	}
	topic, err := vtop.ParseUUID(parts[0])
	if err != nil || topic.String() != parts[0] {
		return wrong("topic", parts[0])
	}
	index, ok := decimal(parts[1], math.MaxInt32)
	if !ok {
		return wrong("index", parts[1])
	}
	name, manifest := strings.CutSuffix(parts[2], manifestSuffix)
	if !manifest {
		if name, ok = strings.CutSuffix(parts[2], logSuffix); !ok {
			return wrong("name", parts[2])
		}
	}
	base, err := strconv.ParseInt(name, 10, 64)
	if err != nil || base < 0 || fmt.Sprintf("%020d", base) != name {
		return wrong("base", parts[2])
	}
	s = SegmentRef{Range: vtop.Range{Topic: topic, Index: int32(index)}, Base: vtop.Offset(base)}
	if err := s.fromQuery(query); err != nil {
		return SegmentRef{}, false, err
	}
	return s, manifest, s.check()
}

func (s *SegmentRef) fromQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return refusef(ErrInvalid, "segment request: query: %v", err)
	}
	for name, all := range values {
		n, ok := uint64(0), len(all) == 1
		switch {
		case !ok:
		case name == "root":
			raw, herr := hex.DecodeString(all[0])
			ok = herr == nil && len(raw) == len(s.Root) && hex.EncodeToString(raw) == all[0]
			copy(s.Root[:], raw)
		case name == "pin":
			s.Pin, ok = decimal(all[0], math.MaxUint64)
		case name == "replica":
			n, ok = decimal(all[0], math.MaxUint64)
			s.Replica = vtop.ReplicaID(n)
		case name == "epoch":
			n, ok = decimal(all[0], math.MaxInt32)
			s.Epoch = vtop.Epoch(n)
		default:
			ok = false
		}
		if !ok {
			return refusef(ErrInvalid, "segment request: %.20s=%.80q", name, all)
		}
	}
	return nil
}

// decimal reads a number that is spelled the one usual way.
func decimal(text string, limit uint64) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && n <= limit && strconv.FormatUint(n, 10) == text
}

// byteRange reads a Range header of one range, against the size of the whole. Without one it is the whole.
// Suffix ranges and several ranges are refused: nobody here asks for them.
func byteRange(header string, size int64) (off, n int64, err error) {
	if header == "" {
		return 0, size, nil
	}
	first, last, ok := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	if !ok || !strings.HasPrefix(header, "bytes=") {
		return 0, 0, refusef(ErrInvalid, "range %.80q: want bytes=FIRST-LAST", header)
	}
	from, ok := decimal(first, math.MaxInt64)
	to := uint64(math.MaxInt64)
	if ok && last != "" {
		to, ok = decimal(last, math.MaxInt64)
	}
	if !ok || to < from {
		return 0, 0, refusef(ErrInvalid, "range %.80q: want bytes=FIRST-LAST", header)
	}
	if int64(from) >= size {
		return 0, 0, refusef(vtop.ErrOffsetOutOfRange, "range %.80q: the segment has %d bytes", header, size)
	}
	return int64(from), min(int64(to), size-1) - int64(from) + 1, nil
}

// contentRange reads the answer's Content-Range.
func contentRange(header string) (off, n, size int64, err error) {
	spec, ok := strings.CutPrefix(header, "bytes ")
	span, total, ok2 := strings.Cut(spec, "/")
	first, last, ok3 := strings.Cut(span, "-")
	from, ok4 := decimal(first, math.MaxInt64)
	to, ok5 := decimal(last, math.MaxInt64)
	whole, ok6 := decimal(total, MaxSegmentSize)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || to < from || to >= whole {
		return 0, 0, 0, refusef(ErrInvalid, "answer's content range is %.80q", header)
	}
	return int64(from), int64(to-from) + 1, int64(whole), nil
}
