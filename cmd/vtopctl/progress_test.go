package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func TestBar_IsFullOnlyWhenTheReplicaVotes(t *testing.T) {
	var out bytes.Buffer
	b := &bar{out: &out}
	j := adminapi.Repair{ID: 3, Range: "orders/0", Destination: "n4", Step: adminapi.StepTransferring, BytesTotal: 200, BytesDone: 100}
	b.update([]adminapi.Repair{j})
	if !strings.Contains(out.String(), "orders/0 on n4: transferring") || !strings.Contains(out.String(), "49%") {
		t.Errorf("half of it shows as %q", out.String())
	}
	j.Step, j.BytesDone = adminapi.StepCatchingUp, 200
	b.update([]adminapi.Repair{j})
	if !strings.Contains(out.String(), "catching-up") || strings.Contains(out.String(), "100%") || b.bar.IsFinished() {
		t.Errorf("copied but not voting shows as %q", out.String())
	}
	// Case: a rate that goes back, as after a transfer that began anew, is drawn, too.
	j.Step, j.BytesDone, j.BytesTotal = adminapi.StepTransferring, 10, 400
	b.update([]adminapi.Repair{j})
	b.close()
}

func TestBar_IsOneForAllJobs(t *testing.T) {
	var out bytes.Buffer
	b := &bar{out: &out}
	b.update([]adminapi.Repair{
		{ID: 1, Range: "a/0", Step: adminapi.StepDone, BytesTotal: 100, BytesDone: 100},
		{ID: 2, Range: "b/0", Destination: "n4", Step: adminapi.StepQueued, BytesTotal: 100},
		{ID: 3, Range: "c/0", Destination: "n4", Step: adminapi.StepTransferring, BytesTotal: 100, BytesDone: 50},
	})
	if !strings.Contains(out.String(), "1 of 3 done, c/0 on n4: transferring") {
		t.Errorf("got %q", out.String())
	}
}

func TestByteRate(t *testing.T) {
	for text, want := range map[string]byteRate{
		"50MB/s": 50_000_000, "50MiB/s": 50 << 20, "50mb/S": 50_000_000, "1.5 GB/s": 1_500_000_000, "131072": 131072, "200k": 200_000,
	} {
		var r byteRate
		if err := r.Set(text); err != nil || r != want {
			t.Errorf("%q: %d, %v; want %d", text, r, err, want)
		}
	}
	for _, text := range []string{"", "/s", "fast", "0", "0MB/s", "-1MB/s", "9999999PB/s", "50MB/min", "4096", "60KB/s"} {
		var r byteRate
		if err := r.Set(text); err == nil {
			t.Errorf("%q was taken as %d", text, r)
		}
	}
}
