package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/drill"
)

// Piped, a drill writes a line for all that happens and one now and then; on a terminal the last line moves.
func TestDrillLines(t *testing.T) {
	snap := func(s time.Duration) drill.Snapshot {
		return drill.Snapshot{Elapsed: s, Duration: time.Minute, Acked: 480, P99MS: 12, Total: 960, Blows: 1, Phase: "healing", Leases: "n1:2"}
	}
	var out bytes.Buffer
	l := &drillLines{out: &out}
	for s := range 25 {
		l.Tick(snap(time.Duration(s) * time.Second))
	}
	l.Tell("blow 1: kill -9 of n1")
	l.close()
	if got := strings.Count(out.String(), "480/s"); got != 2 {
		t.Errorf("%d lines in 25 seconds, want 2:\n%s", got, out.String())
	}
	if strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), "blow 1: kill -9 of n1\n") {
		t.Errorf("piped: %q", out.String())
	}
	out.Reset()
	l = &drillLines{out: &out, live: true}
	l.Tick(snap(time.Second))
	l.Tell("blow 1: kill -9 of n1")
	l.Tick(snap(2 * time.Second))
	l.close()
	if got := strings.Count(out.String(), "\r\x1b[K"); got != 2 || !strings.Contains(out.String(), "\r\x1b[Kblow 1: kill -9 of n1\n") {
		t.Errorf("on a terminal: %q", out.String())
	}
}
