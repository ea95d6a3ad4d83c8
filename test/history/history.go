// Package history holds what clients of one range did and saw against an append-only log: that there is one order of all
// operations, each at some moment between its call and its answer, in which every append took the offset that it was
// answered, every read saw a prefix that was committed, and every question for the end was told the end. The search for
// that order is porcupine's.
package history

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// ErrUndecided is wrapped by the error of a check that ran out of time.
var ErrUndecided = errors.New("not decided in time")

// forever is the answer time of an operation that was never answered.
const forever = math.MaxInt64

// History of one range. It is checked window by window: each Check ends one, at a moment at which no append is under way,
// and what stands in the log then is what the next one begins with. Methods are safe for concurrent use.
type History struct {
	mu     sync.Mutex
	began  time.Time
	window time.Time // when the present window began
	log    []uint64  // what stood in the log then, from offset 0
	ops    []porcupine.Operation
	open   []attempt
	copies bool
}

// attempt is an append whose fate its client doesn't know.
type attempt struct {
	id   uint64
	call int64
}

// New makes the history of an empty range. With copies a record may stand in the log more than once, as records of a
// producer that isn't idempotent may.
func New(copies bool) *History {
	now := time.Now()
	return &History{began: now, window: now, copies: copies}
}

func (h *History) at(t time.Time) int64 { return int64(t.Sub(h.began)) }

// Appended notes a record that was acknowledged at an offset.
func (h *History) Appended(id uint64, offset int64, call, answered time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(input{kind: appends, id: id, offset: offset}, h.at(call), h.at(answered))
	if h.copies {
		h.open = append(h.open, attempt{id, h.at(call)})
	}
}

// Unanswered notes a record that was sent, and may be in the log or not.
func (h *History) Unanswered(id uint64, call time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = append(h.open, attempt{id, h.at(call)})
}

// Read notes records that a reader was given, one behind the other from offset on. When they were asked for doesn't
// matter: what was committed once stays so.
func (h *History) Read(offset int64, ids []uint64, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(input{kind: reads, offset: offset, ids: ids}, h.at(at)-1, h.at(at))
}

// End notes an answer to the question for the end of the log. One that was asked before the window began is passed over.
func (h *History) End(offset int64, call, answered time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if call.After(h.window) {
		h.add(input{kind: ends, offset: offset}, h.at(call), h.at(answered))
	}
}

func (h *History) add(in input, call, answered int64) {
	h.ops = append(h.ops, porcupine.Operation{Input: in, Call: call, Return: answered})
}

// Len is how many operations the present window has.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// Check ends the window: final is what stands in the log from offset 0, no append is under way. It returns what can't have
// come about, or ErrUndecided after limit.
func (h *History) Check(final []uint64, limit time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	base := len(h.log)
	if len(final) < base {
		return fmt.Errorf("the log ends at %d, and ended at %d before", len(final), base)
	}
	for i, id := range h.log {
		if final[i] != id {
			return fmt.Errorf("offset %d has record %d, and had record %d before", i, final[i], id)
		}
	}
	h.settle(final)
	now := h.end()
	h.add(input{kind: reads, offset: int64(base), ids: final[base:]}, h.at(now)-1, h.at(now))
	h.add(input{kind: ends, offset: int64(len(final))}, h.at(now)-1, h.at(now))
	var err error
	switch porcupine.CheckOperationsTimeout(model(h.log), h.ops, limit) {
	case porcupine.Illegal:
		err = fmt.Errorf("%d operations have no order in which they can have happened: %w", len(h.ops), h.explain(final))
	case porcupine.Unknown:
		err = fmt.Errorf("%d operations after %s: %w", len(h.ops), limit, ErrUndecided)
	}
	h.log, h.ops, h.open, h.window = append([]uint64(nil), final...), nil, nil, now
	return err
}

// end is a moment behind all answers.
func (h *History) end() time.Time {
	last := h.at(time.Now())
	for _, op := range h.ops {
		if op.Return != forever {
			last = max(last, op.Return+2)
		}
	}
	return h.began.Add(time.Duration(last))
}

// settle turns each attempt that is in the log, and was not acknowledged there, into an append that may have happened at
// any time after its call. One that is not in the log never happened: a reader that saw it all the same is told from.
func (h *History) settle(final []uint64) {
	acknowledged := map[int64]uint64{}
	for _, op := range h.ops {
		if in := op.Input.(input); in.kind == appends {
			acknowledged[in.offset] = in.id
		}
	}
	calls := map[uint64]int64{}
	for _, a := range h.open {
		if call, ok := calls[a.id]; !ok || a.call < call {
			calls[a.id] = a.call
		}
	}
	for i := len(h.log); i < len(final); i++ {
		id := final[i]
		if call, ok := calls[id]; ok && acknowledged[int64(i)] != id {
			h.add(input{kind: appends, id: id, offset: int64(i)}, call, forever)
			if !h.copies {
				delete(calls, id)
			}
		}
	}
	h.open = nil
}

// explain names the first thing that is wrong by itself, whatever the order.
func (h *History) explain(final []uint64) error {
	written := map[int64]uint64{}
	for _, op := range h.ops {
		in := op.Input.(input)
		if in.kind != appends {
			continue
		}
		if in.offset >= int64(len(final)) {
			return fmt.Errorf("lost: record %d was acknowledged at offset %d, the log ends at %d", in.id, in.offset, len(final))
		}
		if got := final[in.offset]; got != in.id {
			return fmt.Errorf("lost: record %d was acknowledged at offset %d, where record %d stands", in.id, in.offset, got)
		}
		written[in.offset] = in.id
	}
	for i := len(h.log); i < len(final); i++ {
		if _, ok := written[int64(i)]; !ok {
			return fmt.Errorf("not written: offset %d has record %d, which nobody wrote there", i, final[i])
		}
	}
	for _, op := range h.ops {
		in := op.Input.(input)
		for k, id := range in.ids {
			if at := in.offset + int64(k); at >= int64(len(final)) {
				return fmt.Errorf("gone: record %d was read at offset %d, the log ends at %d", id, at, len(final))
			} else if final[at] != id {
				return fmt.Errorf("rewritten: offset %d was read as record %d, record %d stands there", at, id, final[at])
			}
		}
	}
	return errors.New("each is right by itself: something was shown before it was committed, or not shown after it was acknowledged")
}
