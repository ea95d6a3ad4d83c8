//go:build cluster

package cluster

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vtop-log/vtop/test/harness"
)

// F6: forty ranges that keep 1 MiB each, with segments of the default size, of which not one fills up, on a disk that has not half the room for all that is written. It is never too full, and what was
// to be kept is there.
func TestDisk_ManySmallRangesStayWithinTheirRetention(t *testing.T) {
	const ranges, kept, record, perRange = 40, 1 << 20, 60 << 10, 120
	disk := harness.NewDisk(t, 256<<20)
	c := harness.Start(t, harness.Options{
		Nodes: 1, Flags: append([]string{"--disk-reserve", "16MiB"}, steady...),
		Dir: func(int) string { return filepath.Join(disk.Dir, "data") },
	})
	createTopic(t, c, "ledger", ranges, 1, "--config", fmt.Sprint("retention.bytes=", kept))
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: ranges, Size: record, InFlight: 64, PerSecond: 600})
	ledger.WaitMore(ranges*perRange/2, 60*time.Second)
	ledger.WaitMore(ranges*perRange/2, 60*time.Second)
	acks := ledger.Stop(60 * time.Second)
	if err := hasProblem(c, "disk_full", c.Nodes[0].Name); err == nil {
		t.Error("the disk is full of what was not to be kept")
	}
	if refused, err := c.Nodes[0].Metric("vtop_batches_refused_no_space_total"); err != nil || refused > 0 {
		t.Errorf("%.0f batches were refused for want of room (%v)", refused, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(disk.Dir, &st); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB written, %d MiB of the disk used", ranges*perRange*record>>20, (int64(st.Blocks)-int64(st.Bfree))*st.Bsize>>20)
	ends := map[int32]int64{}
	for _, l := range c.WaitCaughtUp("ledger", 60*time.Second) {
		ends[l.Range] = l.HighWatermark
		if left := (l.HighWatermark - l.LogStart) * record; left < kept || left > 3*kept {
			t.Errorf("%s/%d has %d bytes from %d to %d, want %d and not much more", l.Topic, l.Range, left, l.LogStart, l.HighWatermark, kept)
		}
	}
	read, starts := harness.ReadAll(t, c.Bootstrap(), "ledger", ends), map[int32]int64{}
	for _, l := range c.WaitCaughtUp("ledger", 60*time.Second) { // retention may have gone on meanwhile
		starts[l.Range] = l.LogStart
	}
	due := slices.DeleteFunc(acks, func(a harness.Ack) bool { return a.Offset < starts[a.Range] })
	if err := harness.CheckLedger(due, read); err != nil {
		t.Error(err)
	}
	t.Logf("%d records acknowledged, %d of them at or above the log starts, %d read", len(acks), len(due), len(read))
}
