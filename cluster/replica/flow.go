package replica

import (
	"time"

	"github.com/vtop-log/vtop"
)

// The bounds of replication (I13). What does not fit waits in the leader's log, on disk or in its tail buffer.
const (
	// flowWindow is how many bytes may be on their way to one replica of one range without being durable there.
	flowWindow = 4 << 20
	// peerWindow is the same for one connection, all ranges together.
	peerWindow = 16 << 20
	// sendChunk is the size of one Append frame in bytes, unless a single batch is larger.
	sendChunk = 512 << 10
	// flushAfter is how much is gathered before a write, where more is waiting to be sent.
	flushAfter = 256 << 10
)

// flowState is the leader's view of one replica that it feeds.
type flowState uint8

const (
	flowFresh  flowState = iota // Follow is to be sent
	flowAsked                   // Follow or Reset was sent, no answer yet
	flowLive                    // batches are sent and acknowledged
	flowPaused                  // the follower refused; asked again after a pause
	flowGone                    // dropped: the leadership or the replica ended
)

func (s flowState) String() string {
	switch s {
	case flowFresh:
		return "connecting"
	case flowAsked:
		return "asked to follow"
	case flowLive:
		return "following"
	case flowPaused:
		return "refused"
	}
	return "gone"
}

// flow is one replica that a leadership feeds over its peer's connection. It costs no goroutine and, while idle, no
// wake-up.
type flow struct {
	ld      *leadership
	peer    *peer
	replica vtop.ReplicaID
	handle  uint32

	// Guarded by peer.mu.
	state    flowState
	queued   bool
	next     vtop.Offset // to be sent next
	durable  vtop.Offset // acknowledged
	end      vtop.Offset // the follower's log end as it told last
	told     vtop.Offset // high watermark sent last
	inflight sentQueue
	moved    time.Time // of the last progress, or since when it is behind
	retry    *time.Timer
	refusals int
	why      error
}

// behind reports whether the leader's log holds something that the follower has not acknowledged.
func (f *flow) behind() bool { return f.durable < f.ld.log.End() }

// startOverLocked brings the flow back to asking its replica to follow. It returns the bytes that are no longer in flight.
func (f *flow) startOverLocked() int64 {
	f.state = flowFresh
	if f.retry != nil {
		f.retry.Stop()
		f.retry = nil
	}
	f.moved = time.Now()
	return f.inflight.clear()
}

// sentQueue remembers what was sent and not yet acknowledged as durable.
type sentQueue struct {
	frames []sentFrame
	head   int
	bytes  int64
}

type sentFrame struct {
	end   vtop.Offset
	bytes int64
}

func (q *sentQueue) push(end vtop.Offset, bytes int) {
	if q.head > 0 && q.head == len(q.frames) {
		q.frames, q.head = q.frames[:0], 0
	}
	q.frames = append(q.frames, sentFrame{end, int64(bytes)})
	q.bytes += int64(bytes)
}

// upTo takes out the frames that end at or below durable and returns their bytes.
func (q *sentQueue) upTo(durable vtop.Offset) (freed int64) {
	for q.head < len(q.frames) && q.frames[q.head].end <= durable {
		freed += q.frames[q.head].bytes
		q.head++
	}
	if q.head > 256 && q.head*2 > len(q.frames) {
		q.frames = q.frames[:copy(q.frames, q.frames[q.head:])]
		q.head = 0
	}
	q.bytes -= freed
	return freed
}

func (q *sentQueue) clear() (freed int64) {
	freed = q.bytes
	q.frames, q.head, q.bytes = q.frames[:0], 0, 0
	return freed
}
