//go:build cluster

package clients

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// franzSkips are the tests of franz-go's kgo that can't pass, or that speak to a server that isn't there, and why.
var franzSkips = []struct{ tests, why string }{
	{"TestTxnEtl", "needs transactions"},
	{"TestShareGroup.*|TestConsumeRegexShareSkipsInternal", "need share groups (KIP-932)"},
	{"TestScram.*|TestOAuth.*", "need SASL"},
	{"TestConsumeRegex|Test848RegexBrokerResolves", "look for a topic `__consumer_offsets`; vtop keeps offsets in its metadata, and has no such topic"},
}

// franz-go's own tests of producers, consumers and groups, as its module has them, against three vtopd processes.
func TestFranzGo_OwnTests(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: []string{"--log-level", "info"}})
	var skips []string
	for _, s := range franzSkips {
		skips = append(skips, s.tests)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout", "19m", "-run", os.Getenv("VTOP_FEATURES"), "-skip", "^("+strings.Join(skips, "|")+")$",
		"github.com/twmb/franz-go/pkg/kgo")
	cmd.Dir = programs("go")
	cmd.Env = append(os.Environ(), "KGO_SEEDS="+strings.Join(c.Bootstrap(), ","), "KGO_TEST_RECORDS="+franzRecords(), "KGO_LOG_LEVEL=none")
	out, err := cmd.CombinedOutput()
	res := newResults("franz-go")
	for _, m := range regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`).FindAllStringSubmatch(string(out), -1) {
		o := map[string]outcome{"PASS": ok, "FAIL": failed, "SKIP": notRun}[m[1]]
		res.cells = append(res.cells, result{Client: "franz-go", Feature: m[2], Outcome: o})
		if o == failed {
			t.Errorf("%s failed", m[2])
		}
	}
	t.Logf("%d tests ended", len(res.cells))
	if err != nil {
		t.Errorf("go test: %v: %s", err, failures(string(out)))
	}
	if err := res.keep(os.Getenv("VTOP_FEATURES") == ""); err != nil {
		t.Error(err)
	}
}

// failures gives the lines that tests wrote before they failed.
func failures(out string) string {
	var keep []string
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if strings.Contains(line, "--- FAIL: ") {
			keep = append(keep, lines[i:min(len(lines), i+12)]...)
		}
		if strings.Contains(line, "_test.go:") {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep[max(0, len(keep)-80):], "\n")
}

// franzRecords is how many records its ETL tests move; franz-go's own default is 500 000.
func franzRecords() string {
	if n := os.Getenv("VTOP_FRANZ_RECORDS"); n != "" {
		return n
	}
	return "50000"
}
