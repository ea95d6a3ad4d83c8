package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// shaper writes the bytes of a request from its shape: every array has one element, every string one letter. The length or
// count whose turn is lieAt is written as lie instead, and nothing after it.
type shaper struct {
	flexible bool
	version  int16
	b        []byte
	lengths  int // so far
	lieAt    int
	lie      func(s *shaper, width int)
	told     bool
	// Instead of a lie: the array whose turn is manyAt really has so many elements. Names are unique.
	manyAt, many int
	inMany       bool
	reached      bool
	arrays, name int
}

func (s *shaper) length(width, n int) {
	if s.lengths == s.lieAt {
		s.lie(s, width)
		s.told = true
		return
	}
	s.lengths++
	s.honest(width, n)
}

func (s *shaper) honest(width, n int) {
	switch {
	case s.flexible:
		s.b = binary.AppendUvarint(s.b, uint64(n+1))
	case width == 2:
		s.b = binary.BigEndian.AppendUint16(s.b, uint16(n))
	default:
		s.b = binary.BigEndian.AppendUint32(s.b, uint32(n))
	}
}

func (s *shaper) fields(shape []field) {
	for i := range shape {
		if f := &shape[i]; !s.told && s.version >= f.since && (f.before == 0 || s.version < f.before) {
			s.field(f)
		}
	}
	if s.flexible && !s.told { // the count of the tags is a length, too
		s.length(4, -1)
	}
}

func (s *shaper) field(f *field) {
	list := func(elem func()) {
		n, outer := 1, s.inMany
		if s.arrays++; s.many > 0 && s.arrays == s.manyAt+1 {
			n, s.inMany, s.reached = s.many, true, true
		} else if s.inMany { // arrays in elements that are many have none, so that these are as many as can be
			n = 0
		}
		s.length(4, n)
		arrays := s.arrays
		for i := 0; i < n && !s.told; i++ {
			s.arrays = arrays // an array in each element counts once
			elem()
		}
		s.inMany = outer
	}
	text := func(width int) {
		name := "x"
		if s.many > 0 {
			s.name++
			name = strconv.FormatInt(int64(s.name), 36)
		}
		if s.length(width, len(name)); !s.told {
			s.b = append(s.b, name...)
		}
	}
	switch f.kind {
	case kInt8, kInt16, kInt32, kInt64, kUUID:
		s.b = append(s.b, make([]byte, map[kind]int{kInt8: 1, kInt16: 2, kInt32: 4, kInt64: 8, kUUID: 16}[f.kind])...)
	case kString, kNullableString:
		text(2)
	case kBytes:
		text(4)
	case kNullableStruct:
		s.b = append(s.b, 1)
		s.fields(f.elem)
	case kInt32s, kNullableInt32s:
		list(func() { s.b = append(s.b, make([]byte, 4)...) })
	case kInt64s:
		list(func() { s.b = append(s.b, make([]byte, 8)...) })
	case kStrings, kNullableStrings:
		list(func() { text(2) })
	default:
		list(func() { s.fields(f.elem) })
	}
}

// lies are what a length or count is written as.
func lies() map[string]func(*shaper, int) {
	raw := func(compact ...byte) func(uint64, uint32) func(*shaper, int) {
		return func(short uint64, long uint32) func(*shaper, int) {
			return func(s *shaper, width int) {
				switch {
				case s.flexible:
					s.b = append(s.b, compact...)
				case width == 2:
					s.b = binary.BigEndian.AppendUint16(s.b, uint16(short))
				default:
					s.b = binary.BigEndian.AppendUint32(s.b, long)
				}
			}
		}
	}
	return map[string]func(*shaper, int){
		"as much as can be": raw(0xff, 0xff, 0xff, 0xff, 0x07)(math.MaxInt16, math.MaxInt32),
		"a negative number": raw(0xff, 0xff, 0xff, 0xff, 0x0f)(1<<15, 1<<31),
		"minus two":         raw(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)(math.MaxUint16-1, math.MaxUint32-1),
		"no end":            raw(bytes.Repeat([]byte{0xff}, 64)...)(math.MaxInt16, 1<<24),
	}
}

// whole puts a header before a body; the header is honest.
func whole(a *api, version int16, body []byte) []byte {
	req := a.newRequest(version)
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(a.key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 1)
	b = append(b, 0, 1, 'c')
	if req.IsFlexible() {
		b = append(b, 0)
	}
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// advertised are the APIs that ApiVersions names, with the versions that are served. Produce says that it begins at 0.
func advertised(t *testing.T, s *Server) (out []*api) {
	t.Helper()
	for _, k := range apiVersionsOf(s).ApiKeys {
		a := s.api(k.ApiKey)
		if a == nil {
			t.Fatalf("ApiVersions names key %d, which is not served", k.ApiKey)
		}
		if k.MinVersion != a.advertisedMin() || k.MaxVersion != a.max {
			t.Fatalf("%s: advertised from %d to %d, served from %d to %d", a.name, k.MinVersion, k.MaxVersion, a.min, a.max)
		}
		out = append(out, a)
	}
	return out
}

func apiVersionsOf(s *Server) *kmsg.ApiVersionsResponse {
	req := kmsg.NewPtrApiVersionsRequest()
	resp, err := runApiVersions(&call{server: s, node: s.node, frame: &frame{}}, req)
	if err != nil {
		panic(err)
	}
	return resp.(*kmsg.ApiVersionsResponse)
}

// hostileServer has nothing to wait for.
func hostileServer(t testing.TB) *Server {
	c := newFakeCluster(t, 1, func(cfg *Config) {
		cfg.LeaderWait, cfg.MaxTimeout, cfg.AdminTimeout = time.Millisecond, time.Millisecond, time.Millisecond
		cfg.AutoCreate = false
	})
	c.topic("t", 1)
	return c.nodes[0].server
}

// allocates serves a connection that sends just that, and gives the bytes that were allocated meanwhile.
func allocates(s *Server, sent []byte) uint64 {
	var before, after runtime.MemStats
	var nc net.Conn = newPatientConn(sent)
	if sent[5] == keyProduce { // with acks=0 no answer comes
		nc = nullConn{bytes.NewReader(sent)}
	}
	runtime.ReadMemStats(&before)
	newConn(s, nc, "hostile").serve()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostile_EveryLengthOfEveryAPILies: in every version of every API that is advertised, each length and each count lies in turn.
// None passes the guard, and none makes the server allocate for what isn't there (I13). A new row of the table is under it by its shape;
// a row without any length at all fails.
func TestHostile_EveryLengthOfEveryAPILies(t *testing.T) {
	s := hostileServer(t)
	const most = 1 << 20
	frames := 0
	for _, a := range advertised(t, s) {
		lengths := 0
		for version := a.min; version <= a.max; version++ {
			for name, lie := range lies() {
				for at := 0; ; at++ {
					w := shaper{flexible: a.newRequest(version).IsFlexible(), version: version, lieAt: at, lie: lie}
					if w.fields(a.shape); !w.told {
						break
					}
					lengths++
					for _, behind := range []int{0, 4 << 10} {
						body := append(bytes.Clone(w.b), make([]byte, behind)...)
						what := fmt.Sprintf("%s v%d: length %d is %s, %d bytes behind it", a.name, version, at, name, behind)
						if _, err := a.check(version, w.flexible, body); !errors.Is(err, errMalformed) {
							t.Errorf("%s: the guard says %v", what, err)
						}
						frames++
						if got := allocates(s, whole(a, version, body)); got > most {
							t.Errorf("%s: %d bytes allocated", what, got)
						}
					}
				}
			}
		}
		if lengths == 0 {
			t.Errorf("%s: no hostile bytes: its shape has no length that could lie", a.name)
		}
	}
	t.Logf("%d frames", frames)
}

// TestHostile_WhatTheGuardRefusesReachesNoAPI: whichever way an API goes through a connection, its guard stands before its decoder. One tag too
// many is something that the decoders take.
func TestHostile_WhatTheGuardRefusesReachesNoAPI(t *testing.T) {
	s := hostileServer(t)
	for _, a := range advertised(t, s) {
		if !a.newRequest(a.max).IsFlexible() {
			continue
		}
		w := shaper{flexible: true, version: a.max, lieAt: -1}
		w.fields(a.shape)
		body := binary.AppendUvarint(w.b[:len(w.b)-1], maxTags+1)
		for i := range maxTags + 1 {
			body = append(binary.AppendUvarint(body, uint64(1000+i)), 0)
		}
		if req := a.newRequest(a.max); req.ReadFrom(body) != nil {
			t.Fatalf("%s: its decoder refuses that, too", a.name)
		}
		nc := newPatientConn(whole(a, a.max, body))
		c := newConn(s, nc, "hostile")
		time.AfterFunc(10*time.Second, func() { nc.Close() }) // where no answer comes
		c.serve()
		if err := context.Cause(c.ctx); !errors.Is(err, errMalformed) || !errors.Is(err, errTags) || nc.got.Load() != 0 {
			t.Errorf("%s: the connection ended with %v, and %d bytes of an answer", a.name, err, nc.got.Load())
		}
	}
}
