package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// logged runs a story against a logger as a node makes it, and gives the lines without their times.
func logged(t *testing.T, format string, story func(log hclog.Logger, pass func(time.Duration), done func())) []string {
	t.Helper()
	now := time.Unix(1000, 0)
	var out bytes.Buffer
	log, done := loggerTo(&out, config{LogLevel: "debug", LogFormat: format}, func() time.Time { return now })
	story(log, func(d time.Duration) { now = now.Add(d) }, done)
	var lines []string
	for line := range strings.Lines(out.String()) {
		if format == "json" {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			if m["@timestamp"] == nil {
				t.Fatalf("no time in %q", line)
			}
			line = fmt.Sprintf("%s: %s repeated=%v", m["@module"], m["@message"], m["repeated"])
		} else {
			_, line, _ = strings.Cut(line, " ")
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("lines:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// campaigns has a lone survivor stand for election for some time, as Raft's library tells it.
func campaigns(log hclog.Logger, pass func(time.Duration), seconds int) {
	raft := log.Named("raft")
	for range seconds {
		raft.Info("entering candidate state", "node", "n1", "term", 3)
		raft.Info("pre-vote campaign failed, waiting for election timeout", "term", 3, "tally", 1, "refused", 2, "votesNeeded", 2)
		pass(time.Second)
	}
}

// A lone survivor of three stands for election for ever. The first of its lines is there at once, and then one a minute of each kind.
func TestCollapse_LoneSurvivor(t *testing.T) {
	const a, b = "[INFO]  vtopd.raft: entering candidate state: node=n1 term=3", "[INFO]  vtopd.raft: pre-vote campaign failed, waiting for election timeout: term=3 tally=1 refused=2 votesNeeded=2"
	got := logged(t, "text", func(log hclog.Logger, pass func(time.Duration), _ func()) { campaigns(log, pass, 121) })
	wantLines(t, got, a, b, a+" (repeated 60 times)", b+" (repeated 60 times)", a+" (repeated 60 times)", b+" (repeated 60 times)")
	got = logged(t, "json", func(log hclog.Logger, pass func(time.Duration), _ func()) { campaigns(log, pass, 61) })
	const ja, jb = "vtopd.raft: entering candidate state repeated=", "vtopd.raft: pre-vote campaign failed, waiting for election timeout repeated="
	wantLines(t, got, ja+"<nil>", jb+"<nil>", ja+"60", jb+"60")
}

// What is not a repeat is never lost, nor is how often something was repeated: it is told with the next line of any kind, or at the end.
func TestCollapse_NothingElseIsLost(t *testing.T) {
	got := logged(t, "text", func(log hclog.Logger, pass func(time.Duration), done func()) {
		for i := range 3 {
			log.With("range", i).Warn("cannot lead", "error", errors.New("disk"))
			log.Named("x").Warn("cannot lead", "error", errors.New("disk"))
			log.Error("cannot lead", "error", errors.New("disk"))
			log.Debug("looks")
			pass(time.Second)
		}
		pass(collapseFor + collapseGrace)
		log.Info("other")
		log.Info("other")
		pass(collapseFor + collapseGrace)
		log.Error("cannot lead", "error", errors.New("disk"))
		done()
		log.Info("other")
		log.Info("other")
		done()
	})
	wantLines(t, got,
		"[WARN]  vtopd: cannot lead: range=0 error=disk", "[WARN]  vtopd.x: cannot lead: error=disk", "[ERROR] vtopd: cannot lead: error=disk", "[DEBUG] vtopd: looks",
		"[WARN]  vtopd: cannot lead: range=1 error=disk", "[DEBUG] vtopd: looks",
		"[WARN]  vtopd: cannot lead: range=2 error=disk", "[DEBUG] vtopd: looks",
		"[WARN]  vtopd.x: cannot lead: error=disk (repeated 2 times)", "[ERROR] vtopd: cannot lead: error=disk (repeated 2 times)", "[INFO]  vtopd: other",
		"[INFO]  vtopd: other (repeated 1 times)", "[ERROR] vtopd: cannot lead: error=disk",
		"[INFO]  vtopd: other", "[INFO]  vtopd: other (repeated 1 times)",
	)
}

// What is remembered is bounded (I13), and what is forgotten is told first.
func TestCollapse_RemembersALimitedNumberOfLines(t *testing.T) {
	got := logged(t, "text", func(log hclog.Logger, _ func(time.Duration), _ func()) {
		log.Info("first")
		log.Info("first")
		for i := range collapseLines {
			log.Info("line", "n", i)
		}
		log.Info("first")
	})
	if n := len(got); n != collapseLines+3 || got[n-3] != "[INFO]  vtopd: first (repeated 1 times)" || got[n-1] != "[INFO]  vtopd: first" {
		t.Fatalf("%d lines, the last: %q", n, got[max(0, n-3):])
	}
}
