package drill

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is all that a drill found out. Field names are part of vtop's interface and stay; times in milliseconds count from
// Started and are -1 where there was nothing to measure.
type Report struct {
	Drill   string `json:"drill"`
	Topic   string `json:"topic"`
	Cluster string `json:"cluster"`
	// OwnTopic: the drill made the topic. Kept: it is still there.
	OwnTopic bool      `json:"own_topic"`
	Kept     bool      `json:"kept"`
	Started  time.Time `json:"started"`
	TookMS   int64     `json:"took_ms"`
	// Interrupted: it was ended before its time; it healed and checked as otherwise.
	Interrupted bool     `json:"interrupted"`
	Ranges      int      `json:"ranges"`
	Replicas    int      `json:"replicas"`
	Load        Load     `json:"load"`
	Blows       []Blow   `json:"blows"`
	Down        Down     `json:"unavailability"`
	Checks      []Check  `json:"checks"`
	Seconds     []Second `json:"seconds"`
	Leases      []Span   `json:"leases"`
	// Notes are what somebody who reads the report should know: blows that were held back, nodes that were spared.
	Notes []string `json:"notes"`
	// Failures are why the drill failed, beside checks that did not hold.
	Failures []string `json:"failures"`
}

// Load is what was written and read.
type Load struct {
	PerSecond  int   `json:"per_second"`
	RecordSize int   `json:"record_size"`
	Sent       int64 `json:"sent"`
	Acked      int64 `json:"acknowledged"`
	// GivenUp may or may not be in the log; HeldBack were never sent, the client being full.
	GivenUp  int   `json:"given_up"`
	HeldBack int   `json:"held_back"`
	Read     int64 `json:"read"`
	// P50MS, P99MS and MaxMS are from the record given to the client to its acknowledgement.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

// Blow is one fault and what came of it.
type Blow struct {
	N int `json:"n"`
	// What says it for people; Node is who was hit, Range -1 if none was meant.
	What  string `json:"what"`
	Node  string `json:"node"`
	Range int32  `json:"range"`
	AtMS  int64  `json:"at_ms"`
	// DownMS is the longest time, beginning with the blow and until the cluster was whole again, in which some range
	// acknowledged nothing; DownFromMS is when that began. -1 if nothing was acknowledged afterwards.
	DownMS     int64 `json:"down_ms"`
	DownFromMS int64 `json:"down_from_ms"`
	DownRange  int32 `json:"down_range"`
	// WholeMS is how long it took until every replica voted and followed again; -1 if that was not seen.
	WholeMS int64 `json:"whole_ms"`
	// Failed says what went wrong with the blow or the healing after it.
	Failed string `json:"failed,omitempty"`
}

// Down sums up the blows.
type Down struct {
	Blows    int   `json:"blows"`
	MedianMS int64 `json:"median_ms"`
	WorstMS  int64 `json:"worst_ms"`
}

// Second is one second of the load.
type Second struct {
	At    int     `json:"at"`
	Acked int     `json:"acknowledged"`
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
}

// Held reports whether the drill passed: blows fell, all checks held, nothing else failed.
func (r *Report) Held() bool {
	if len(r.Failures) > 0 || len(r.Blows) == 0 || len(r.Checks) == 0 {
		return false
	}
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.Held })
}

// Verdict says in one line how it ended.
func (r *Report) Verdict() string {
	var bad []string
	for _, c := range r.Checks {
		if !c.Held {
			bad = append(bad, c.Name)
		}
	}
	switch {
	case len(bad) > 0:
		return "FAILED: " + strings.Join(bad, ", ") + " did not hold"
	case len(r.Failures) > 0:
		return "FAILED: " + r.Failures[0]
	case len(r.Blows) == 0:
		return "FAILED: no blow fell, so nothing was shown"
	case r.Interrupted:
		return fmt.Sprintf("interrupted after %d blows; every check held", len(r.Blows))
	}
	return fmt.Sprintf("%d blows, every check held", len(r.Blows))
}

// measure fills in what follows from acknowledgements: the load's latency, the seconds, and how long each blow kept ranges
// from acknowledging.
func (r *Report) measure(acks []Ack, ended time.Time) {
	r.Seconds = secondsOf(acks, r.Started)
	all := make([]float64, len(acks))
	for i, a := range acks {
		all[i] = millis(a.At.Sub(a.Sent))
	}
	slices.Sort(all)
	r.Load.P50MS, r.Load.P99MS, r.Load.MaxMS = quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1)
	byRange := map[int32][]int64{}
	for _, a := range acks {
		byRange[a.Range] = append(byRange[a.Range], a.At.Sub(r.Started).Milliseconds())
	}
	var downs []int64
	end := ended.Sub(r.Started).Milliseconds()
	for i := range r.Blows {
		b := &r.Blows[i]
		until := end
		if b.WholeMS >= 0 {
			until = b.AtMS + b.WholeMS
		}
		b.DownMS = 0
		for n, times := range byRange {
			slices.Sort(times)
			from, gap, ok := longestGap(times, b.AtMS, until)
			if !ok {
				b.DownMS, b.DownFromMS, b.DownRange = -1, from, n
				break
			}
			if gap > b.DownMS {
				b.DownMS, b.DownFromMS, b.DownRange = gap, from, n
			}
		}
		downs = append(downs, b.DownMS)
	}
	r.Down = downOf(downs)
}

// longestGap is the longest time without an acknowledgement that begins in [at, until], the blow itself being a beginning.
// ok is false if none came after at.
func longestGap(times []int64, at, until int64) (from, gap int64, ok bool) {
	i, _ := slices.BinarySearch(times, at)
	prev := at
	for ; i < len(times) && prev <= until; i++ {
		if d := times[i] - prev; d > gap || !ok {
			from, gap, ok = prev, d, true
		}
		prev = times[i]
	}
	if !ok {
		return at, 0, false
	}
	return from, gap, true
}

// downOf: a blow after which nothing was acknowledged is worse than any number.
func downOf(downs []int64) Down {
	if len(downs) == 0 {
		return Down{MedianMS: -1, WorstMS: -1}
	}
	sorted := slices.Clone(downs)
	slices.SortFunc(sorted, func(a, b int64) int {
		never := func(x int64) int64 {
			if x < 0 {
				return math.MaxInt64
			}
			return x
		}
		return cmp.Compare(never(a), never(b))
	})
	return Down{Blows: len(sorted), MedianMS: sorted[(len(sorted)-1)/2], WorstMS: sorted[len(sorted)-1]}
}

func secondsOf(acks []Ack, started time.Time) []Second {
	by := map[int][]float64{}
	last := -1
	for _, a := range acks {
		at := int(a.At.Sub(started) / time.Second)
		by[at] = append(by[at], millis(a.At.Sub(a.Sent)))
		last = max(last, at)
	}
	out := make([]Second, 0, last+1)
	for at := range last + 1 {
		l := by[at]
		slices.Sort(l)
		out = append(out, Second{At: at, Acked: len(l), P50MS: quantile(l, 0.5), P99MS: quantile(l, 0.99)})
	}
	return out
}

func millis(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*100) / 100
}

// quantile of sorted values; -1 without any.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return -1
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Draw writes the report as text.
func (r *Report) Draw(w io.Writer) {
	topic := r.Topic
	switch {
	case r.OwnTopic && r.Kept:
		topic += " (made by the drill, kept)"
	case r.OwnTopic:
		topic += " (made by the drill, deleted)"
	}
	fmt.Fprintf(w, "drill %s on cluster %s, topic %s: %d ranges, %d replicas\n", r.Drill, r.Cluster, topic, r.Ranges, r.Replicas)
	fmt.Fprintf(w, "%s in %s: %d records of %d bytes sent, %d acknowledged, %d given up, %d held back, %d read\n",
		plural(len(r.Blows), "blow"), span(r.TookMS), r.Load.Sent, r.Load.RecordSize, r.Load.Acked, r.Load.GivenUp, r.Load.HeldBack, r.Load.Read)
	fmt.Fprintf(w, "latency p50 %s, p99 %s, most %s\n", float(r.Load.P50MS), float(r.Load.P99MS), float(r.Load.MaxMS))
	fmt.Fprintf(w, "no acknowledgement after a blow for %s (median), %s (worst)\n\n", span(r.Down.MedianMS), span(r.Down.WorstMS))
	rows := make([][]string, 0, len(r.Blows))
	for _, b := range r.Blows {
		rows = append(rows, []string{strconv.Itoa(b.N), span(b.AtMS), b.What, span(b.DownMS), span(b.WholeMS), dash(b.Failed)})
	}
	columns(w, []string{"BLOW", "AT", "WHAT", "NO-ACK", "WHOLE-AFTER", "FAILED"}, rows)
	fmt.Fprintln(w)
	rows = rows[:0]
	for _, c := range r.Checks {
		state := "held"
		if !c.Held {
			state = "NOT HELD"
		}
		rows = append(rows, []string{c.Name, state, fmt.Sprintf("%d %s", c.Looked, c.Of), c.Promise})
	}
	columns(w, []string{"CHECK", "", "LOOKED-AT", "PROMISE"}, rows)
	for _, c := range r.Checks {
		for _, text := range c.Breaches {
			fmt.Fprintf(w, "  %s: %s\n", c.Name, text)
		}
		if more := c.Count - len(c.Breaches); more > 0 {
			fmt.Fprintf(w, "  %s: and %d more\n", c.Name, more)
		}
		if c.Unknown != "" {
			fmt.Fprintf(w, "  %s: not known: %s\n", c.Name, c.Unknown)
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	for _, f := range r.Failures {
		fmt.Fprintln(w, "failed:", f)
	}
	fmt.Fprintf(w, "\n%s\n", r.Verdict())
}

func columns(out io.Writer, header []string, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 4, 3, ' ', 0)
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// span shows milliseconds; what was not measured is a question mark (I12).
func span(ms int64) string {
	if ms < 0 {
		return "?"
	}
	d := time.Duration(ms) * time.Millisecond
	if d >= 10*time.Second {
		d = d.Round(100 * time.Millisecond)
	}
	return d.String()
}

func float(ms float64) string {
	if ms < 0 {
		return "?"
	}
	return strconv.FormatFloat(ms, 'f', -1, 64) + "ms"
}
