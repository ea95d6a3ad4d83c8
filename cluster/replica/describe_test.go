package replica

import (
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
)

// logLines collects what is logged.
type logLines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// Whoever reads the log knows topics by name: a range is TOPIC/N in every line of the engine while its topic is there.
func TestLog_NamesRangesByTopic(t *testing.T) {
	lines := &logLines{}
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: lines})
	c := newCluster(t, 3, 1, withConfig(func(_ vtop.NodeName, cfg *Config) { cfg.Log = log }))
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "x")
	c.awaitSame("a", r)
	c.kill("b")
	wipe(t, c, "b", r)
	c.start("b") // it is lost
	c.await("the loss to be known", func() bool { _, there := c.rangeOf(r).On("b"); return !there })
	c.lead("c", r)
	c.await("a to have said all", func() bool { return strings.Contains(lines.String(), "no longer leading: range=events/0") })
	for _, want := range []string{"leading: range=events/0", "no longer leading: range=events/0", "may have forgotten what it held", "role: range=events/0"} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("nothing logged of %q", want)
		}
	}
	for line := range strings.Lines(lines.String()) {
		if strings.Contains(line, "range="+r.Topic.String()) {
			t.Errorf("a topic's id instead of its name: %s", line)
		}
	}
}
