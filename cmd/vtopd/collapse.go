package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// collapseFor is how long a line that was written keeps those away that say the same.
	collapseFor = time.Minute
	// collapseGrace is how much longer the count of what was kept back waits for the next line of that kind, to be told with it.
	collapseGrace = 10 * time.Second
	// collapseLines bounds the lines that are remembered.
	collapseLines = 1000
)

// collapse is the sink of a node's log. A line that says what another has said less than a minute ago, in the same words and with
// the same fields, is counted instead of written; the next one after that minute, or whatever line comes then, tells how many they were.
// Lines for debugging pass as they are. It is safe for concurrent use.
type collapse struct {
	out  io.Writer
	json bool
	now  func() time.Time

	mu sync.Mutex
	// said are the lines of the last minute by what they say; order has the same, the oldest first.
	said  map[string]*said
	order []*said
}

// said is a line that was written.
type said struct {
	words string
	at    time.Time
	// last is the newest that was kept back, times how many were.
	last  []byte
	times int
}

func newCollapse(out io.Writer, json bool, now func() time.Time) *collapse {
	return &collapse{out: out, json: json, now: now, said: map[string]*said{}}
}

// Write implements io.Writer, for what hclog writes without a level.
func (c *collapse) Write(p []byte) (int, error) { return c.LevelWrite(hclog.NoLevel, p) }

// LevelWrite implements hclog.LevelWriter: p is one line.
func (c *collapse) LevelWrite(level hclog.Level, p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if level == hclog.Debug || level == hclog.Trace {
		c.forgetLocked(now, collapseLines)
		return c.out.Write(p)
	}
	words := c.words(p)
	s := c.said[words]
	if s != nil && now.Sub(s.at) < collapseFor {
		s.last, s.times = append(s.last[:0], p...), s.times+1
		return len(p), nil
	}
	line := p
	if s != nil && s.times > 0 {
		line = c.counted(p, s.times+1) // this one is a repeat, too
	}
	if s != nil {
		delete(c.said, words)
		c.order = slices.DeleteFunc(c.order, func(o *said) bool { return o == s })
	}
	c.forgetLocked(now, collapseLines-1)
	s = &said{words: words, at: now}
	c.said[words], c.order = s, append(c.order, s)
	if _, err := c.out.Write(line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush tells of all that was kept back.
func (c *collapse) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(c.now(), 0)
}

// forgetLocked drops the lines whose time is over, and the oldest beyond a limit, and tells how often each was repeated.
func (c *collapse) forgetLocked(now time.Time, limit int) {
	for len(c.order) > 0 && (len(c.order) > limit || now.Sub(c.order[0].at) >= collapseFor+collapseGrace) {
		s := c.order[0]
		c.order = c.order[1:]
		delete(c.said, s.words)
		if s.times > 0 {
			_, _ = c.out.Write(c.counted(s.last, s.times))
		}
	}
}

// stamp begins the time in a line of JSON; it cannot stand in a text, where quotes are escaped.
var stamp = []byte(`"@timestamp":"`)

// words is a line without its time.
func (c *collapse) words(p []byte) string {
	if !c.json {
		_, words, _ := bytes.Cut(p, []byte(" "))
		return string(words)
	}
	before, after, _ := bytes.Cut(p, stamp)
	_, after, _ = bytes.Cut(after, []byte(`"`))
	return string(before) + string(after)
}

// counted is a line that says how often it was repeated since it was written last.
func (c *collapse) counted(p []byte, times int) []byte {
	line := bytes.TrimSuffix(p, []byte("\n"))
	if c.json {
		return fmt.Appendf(nil, "%s,\"repeated\":%d}\n", bytes.TrimSuffix(line, []byte("}")), times)
	}
	return fmt.Appendf(nil, "%s (repeated %d times)\n", line, times)
}
