package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// Trouble with a certificate is one line, another one when it gets worse, one more each few hours, and one at its end.
func TestCertLog_SaysLittle(t *testing.T) {
	var out bytes.Buffer
	c := newCertLog(hclog.New(&hclog.LoggerOptions{Output: &out}))
	t0 := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ending := []adminapi.Problem{{Kind: "certificate_ending", Subject: "Kafka port", Message: "it ends"}}
	ended := []adminapi.Problem{{Kind: "certificate_expired", Subject: "Kafka port", Message: "it has ended"}}
	for i, step := range []struct {
		after    time.Duration
		problems []adminapi.Problem
		says     string
	}{
		{0, nil, ""},
		{0, ending, "it ends"},
		{time.Minute, ending, ""},
		{certRepeat, ending, "it ends"},
		{certRepeat + time.Minute, ended, "it has ended"},
		{certRepeat + 2*time.Minute, ended, ""},
		{certRepeat + 3*time.Minute, nil, "renewed"},
		{certRepeat + 4*time.Minute, nil, ""},
	} {
		out.Reset()
		c.tell(step.problems, t0.Add(step.after))
		if got := out.String(); step.says == "" && got != "" || !strings.Contains(got, step.says) || strings.Count(got, "\n") > 1 {
			t.Errorf("step %d: the log has %q, want %q", i, got, step.says)
		}
	}
}
