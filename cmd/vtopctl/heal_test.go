package main

import (
	"strings"
	"testing"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// I12: what no node told is not shown as a number.
func TestDrawHeal_UnknownIsNoNumber(t *testing.T) {
	for limit, want := range map[int]string{8: "0 of at most 8 repairs under way", adminapi.Unknown: "the Raft leader did not answer"} {
		var out strings.Builder
		drawHeal(&out, &adminapi.HealStatus{AfterMS: 600_000, Limit: limit})
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "-1") {
			t.Errorf("limit %d: %q, want %q", limit, out.String(), want)
		}
	}
}
