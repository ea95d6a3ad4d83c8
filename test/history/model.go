package history

import "github.com/anishathalye/porcupine"

type kind uint8

const (
	appends kind = iota
	reads
	ends
)

type input struct {
	kind   kind
	offset int64
	id     uint64   // of an append
	ids    []uint64 // of a read
}

// state is the log behind what it began with, as a list whose beginning is shared by all states that have it.
type state struct {
	len  int64
	hash uint64
	last *record
}

type record struct {
	id   uint64
	prev *record
}

// model of a range whose log begins with base.
func model(base []uint64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{len: int64(len(base))} },
		Step: func(s, in, _ any) (bool, any) { return step(base, s.(state), in.(input)) },
		// States that differ and have one hash would be taken for one: two in 2^64.
		Equal: func(a, b any) bool { return a.(state).len == b.(state).len && a.(state).hash == b.(state).hash },
		Hash:  func(s any) uint64 { return s.(state).hash ^ uint64(s.(state).len) },
	}
}

func step(base []uint64, s state, in input) (bool, state) {
	switch in.kind {
	case appends:
		if in.offset != s.len {
			return false, s
		}
		hash := (s.hash ^ in.id) * 0x9e3779b97f4a7c15
		return true, state{len: s.len + 1, hash: hash ^ hash>>29, last: &record{id: in.id, prev: s.last}}
	case ends:
		return in.offset == s.len, s
	default:
		return saw(base, s, in), s
	}
}

// saw reports whether the log has the records of a read.
func saw(base []uint64, s state, in input) bool {
	end := in.offset + int64(len(in.ids))
	if end > s.len || in.offset < 0 {
		return false
	}
	at, r := s.len-1, s.last
	for ; at >= end && at >= int64(len(base)); at-- {
		r = r.prev
	}
	for at = end - 1; at >= in.offset; at-- {
		id := in.ids[at-in.offset]
		if at < int64(len(base)) {
			if base[at] != id {
				return false
			}
			continue
		}
		if r.id != id {
			return false
		}
		r = r.prev
	}
	return true
}
