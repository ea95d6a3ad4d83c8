package repair

import (
	"testing"

	"github.com/vtop-log/vtop/fsm"
)

// BenchmarkTransfer is the pipeline from the sources' disk to the destination's, without a network: reading and verifying
// there, verifying, writing and syncing here. One operation is one replica of 256 MiB in segments of 64 MiB.
func BenchmarkTransfer(b *testing.B) {
	const segments, size = 4, 64 << 20
	var total int64
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b, "d")
		w.segments(segments, size)
		total = 0
		for _, seg := range w.leader.Segments() {
			total += seg.Bytes
		}
		w.start()
		b.StartTimer()
		w.awaitStep(w.submit(), fsm.RepairCatchingUp)
		b.StopTimer()
		w.stop()
		b.StartTimer()
	}
	b.SetBytes(total)
}
