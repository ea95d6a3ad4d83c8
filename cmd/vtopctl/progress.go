package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// progress shows how jobs get on: a bar on a terminal, lines elsewhere, nothing beside JSON.
type progress interface {
	update(jobs []adminapi.Repair)
	note(text string)
	close()
}

// progress chooses by where the output goes. With -o json a terminal on standard error gets the bar.
func (o *options) progress(cmd *cobra.Command) progress {
	out := cmd.OutOrStdout()
	if o.output == "json" {
		if terminal(cmd.ErrOrStderr()) {
			return &bar{out: cmd.ErrOrStderr()}
		}
		return noProgress{}
	}
	if terminal(out) {
		return &bar{out: out}
	}
	return &progressLines{out: out, shown: map[uint64]shownLine{}}
}

func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

type noProgress struct{}

func (noProgress) update([]adminapi.Repair) {}
func (noProgress) note(string)              {}
func (noProgress) close()                   {}

// linesEvery is the pause between two lines of a job that only moves bytes.
const linesEvery = 5 * time.Second

type shownLine struct {
	what string
	done int64
	at   time.Time
}

// progressLines writes a line when something is new: at once for a step or a reason, now and then for bytes.
type progressLines struct {
	out   io.Writer
	shown map[uint64]shownLine
}

func (l *progressLines) update(jobs []adminapi.Repair) {
	for i := range jobs {
		j := &jobs[i]
		if ended(j) {
			continue // the end is told with what was read back
		}
		was := l.shown[j.ID]
		what := j.Step + "\x00" + j.Waiting + "\x00" + j.LastError
		if what == was.what && (j.BytesDone == was.done || time.Since(was.at) < linesEvery) {
			continue
		}
		l.shown[j.ID] = shownLine{what: what, done: j.BytesDone, at: time.Now()}
		fmt.Fprintf(l.out, "%s on %s: %s\n", j.Range, j.Destination, getsOn(j))
	}
}

func (l *progressLines) note(text string) { fmt.Fprintln(l.out, text) }
func (l *progressLines) close()           {}

// getsOn says how one job gets on, and why if it does not.
func getsOn(j *adminapi.Repair) string {
	parts := []string{fmt.Sprintf("%s (repair %d)", j.Step, j.ID)}
	if j.BytesTotal > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s", size(j.BytesDone), size(j.BytesTotal)))
	}
	if j.Step == adminapi.StepTransferring && j.BytesPerSecond > 0 {
		parts = append(parts, size(j.BytesPerSecond)+"/s")
		if t := left(j.ETAMS); t != "" {
			parts = append(parts, t)
		}
		parts = append(parts, "from "+strings.Join(j.Sources, "+"))
	}
	if j.Waiting != "" {
		parts = append(parts, "waiting: "+j.Waiting)
	}
	if j.LastError != "" {
		parts = append(parts, "last error: "+j.LastError)
	}
	return strings.Join(parts, ", ")
}

// bar is one bar for all jobs together, with a word about the one that moves.
type bar struct {
	out io.Writer
	bar *progressbar.ProgressBar
}

func (b *bar) update(jobs []adminapi.Repair) {
	var done, total int64
	open, at := 0, -1
	for i := range jobs {
		done, total = done+jobs[i].BytesDone, total+jobs[i].BytesTotal
		if !ended(&jobs[i]) {
			open++
			if at < 0 || jobs[i].Step != adminapi.StepQueued && jobs[at].Step == adminapi.StepQueued {
				at = i
			}
		}
	}
	if at < 0 {
		return
	}
	text := jobs[at].Range + " on " + jobs[at].Destination + ": " + getsOn(&jobs[at])
	if len(jobs) > 1 {
		text = fmt.Sprintf("%d of %d done, %s", len(jobs)-open, len(jobs), text)
	}
	b.draw(text, done, total)
}

// draw keeps the bar one byte longer than there is to copy: it is full when the replica votes, not when its last byte
// is there.
func (b *bar) draw(text string, done, total int64) {
	if total++; b.bar == nil {
		b.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(b.out), progressbar.OptionSetWidth(24), progressbar.OptionSetElapsedTime(false),
			progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionUseANSICodes(true))
	} else if total != b.bar.GetMax64() {
		b.bar.ChangeMax64(total)
	}
	_ = b.bar.Set64(min(done, total-1)) // a bar that cannot be drawn stops no repair
	b.bar.Describe(text)
}

func (b *bar) note(text string) {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
	fmt.Fprintln(b.out, text)
}

func (b *bar) close() {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
}
