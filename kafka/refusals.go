package kafka

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/vtop-log/vtop"
)

// producerKey is one idempotent producer on one range.
type producerKey struct {
	r     vtop.Range
	id    int64
	epoch int16
}

// refusals remembers, for one connection, which batches of idempotent producers were refused for a passing reason. The
// batches that the client had sent behind such a batch find a gap in the sequence numbers; they get its code
// again instead of OUT_OF_ORDER_SEQUENCE_NUMBER, on which some clients give up their sequence and write twice.
// The zero value is ready. Only the writer uses it.
type refusals struct {
	seen map[producerKey]refused
}

type refused struct {
	first int32
	code  int16
	at    time.Time
}

const (
	// maxRefusals bounds the table; when it is full it is forgotten, and the client sees the sequence error.
	maxRefusals = 1024
	// refusalAge is how long a gap is put down to a refusal: clients resend what was in flight within seconds.
	refusalAge = 30 * time.Second
)

// code returns the code to answer for a batch that was refused with code.
func (r *refusals) code(key producerKey, first int32, code int16, now time.Time) int16 {
	if key == (producerKey{}) {
		return code
	}
	if code == kerr.OutOfOrderSequenceNumber.Code {
		before, ok := r.seen[key]
		if ok && behind(first, before.first) && now.Sub(before.at) < refusalAge {
			return before.code
		}
		return code
	}
	if !kerr.IsRetriable(kerr.ErrorForCode(code)) {
		return code
	}
	if before, ok := r.seen[key]; ok && behind(first, before.first) && now.Sub(before.at) < refusalAge {
		return code // the first refused batch is the one that leaves the gap
	}
	if r.seen == nil || len(r.seen) >= maxRefusals {
		r.seen = map[producerKey]refused{}
	}
	r.seen[key] = refused{first, code, now}
	return code
}

// behind says whether sequence number a comes after b; they go on at 0 after 2^31-1.
func behind(a, b int32) bool {
	d := (a - b) & (1<<31 - 1)
	return d != 0 && d < 1<<30
}

// clear forgets a producer one of whose batches was taken.
func (r *refusals) clear(key producerKey) {
	if len(r.seen) > 0 {
		delete(r.seen, key)
	}
}

// produceCode is code for Produce, whose own refusals have no sentinel in vtop.
func (s *Server) produceCode(err error) int16 {
	switch {
	case errors.Is(err, errAcks):
		return kerr.InvalidRequiredAcks.Code
	case errors.Is(err, errTransactional):
		return kerr.TransactionalIDAuthorizationFailed.Code
	}
	return s.code(faceProduce, err)
}
