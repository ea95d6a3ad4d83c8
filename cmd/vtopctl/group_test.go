package main

import (
	"testing"
	"time"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func TestResetTo(t *testing.T) {
	now := time.Date(2026, 2, 14, 8, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		to   string
		want adminapi.ResetOffsets // without To: refused
	}{
		{"earliest", adminapi.ResetOffsets{To: adminapi.ToEarliest}},
		{"latest", adminapi.ResetOffsets{To: adminapi.ToLatest}},
		{"0", adminapi.ResetOffsets{To: adminapi.ToOffset}},
		{"12", adminapi.ResetOffsets{To: adminapi.ToOffset, Offset: 12}},
		{"2026-02-14T09:30:00.5+02:00", adminapi.ResetOffsets{To: adminapi.ToTime, Time: time.Date(2026, 2, 14, 7, 30, 0, 500_000_000, time.UTC)}},
		{"-1h", adminapi.ResetOffsets{To: adminapi.ToTime, Time: now.Add(-time.Hour)}},
		{"-1h30m", adminapi.ResetOffsets{To: adminapi.ToTime, Time: now.Add(-90 * time.Minute)}},
		{"-250ms", adminapi.ResetOffsets{To: adminapi.ToTime, Time: now.Add(-250 * time.Millisecond)}},
		{"-7d", adminapi.ResetOffsets{To: adminapi.ToTime, Time: now.AddDate(0, 0, -7)}},
		{to: ""},
		{to: "-"},
		{to: "-5"},
		{to: "--1h"},
		{to: "-+1h"},
		{to: "1h"},
		{to: "-1w"},
		{to: "-65536d"},
		{to: "-60d12h"},
		{to: "-57y"},
		{to: "2026-02-14"},
		{to: "2026-02-14T08:00:00"},
		{to: "1969-12-31T23:59:59Z"},
		{to: "-500000h"}, // before 1970
	} {
		var got adminapi.ResetOffsets
		err := resetTo(&got, row.to, now)
		if (err == nil) != (row.want.To != "") || got != row.want {
			t.Errorf("--to %q: %+v, %v, want %+v", row.to, got, err, row.want)
		}
	}
}
