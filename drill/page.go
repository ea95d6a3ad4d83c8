package drill

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"span": span, "float": float, "dash": dash}).Parse(pageText))

// Sizes of the timeline, in the units of its SVG.
const (
	pageWidth  = 1000
	pageLeft   = 70
	pageRight  = 10
	rowHeight  = 22
	rowGap     = 4
	plotHeight = 150
	plotGap    = 34
)

// page is what the template draws.
type page struct {
	*Report
	VerdictText   string
	OK            bool
	When          string
	Width, Height int
	Left, Right   int
	Rows          []pageRow
	Bars          []pageBar
	Marks         []pageMark
	Ticks         []pageTick
	Nodes         []pageNode
	Latency, Rate pagePlot
	AxisY, MarkH  int
}

type pageRow struct {
	Y    int
	Text string
}

type pageBar struct {
	X, W        float64
	Y, H        int
	Class, Text string
	Tip         string
}

type pageMark struct {
	X, DownX, DownW float64
	N               int
	Tip             string
}

type pageTick struct {
	X    float64
	Text string
}

type pageNode struct{ Name, Class string }

type pagePlot struct {
	Y, H   int
	Title  string
	Lines  []pageLine
	Grid   []pageGrid
	Bottom int
}

type pageLine struct{ Class, Points string }

type pageGrid struct {
	Y    float64
	Text string
}

// HTML writes the report as one page that needs nothing else: no script, no font, no other file.
func (r *Report) HTML(w io.Writer) error {
	return pageTemplate.Execute(w, r.page())
}

func (r *Report) page() *page {
	p := &page{
		Report: r, VerdictText: r.Verdict(), OK: r.Held(), When: r.Started.UTC().Format("2006-01-02 15:04:05 MST"),
		Width: pageWidth, Left: pageLeft, Right: pageWidth - pageRight,
	}
	total := r.total()
	x := func(ms int64) float64 {
		return round1(pageLeft + float64(ms)/float64(total)*(pageWidth-pageLeft-pageRight))
	}
	y := p.drawLeases(x)
	p.drawLatency(y+plotGap, x)
	p.drawRate(p.Latency.Bottom+plotGap, x)
	p.AxisY = p.Rate.Bottom
	p.MarkH, p.Height = p.AxisY-14, p.AxisY+30
	for _, b := range r.Blows {
		m := pageMark{X: x(b.AtMS), N: b.N, Tip: fmt.Sprintf("blow %d at %s: %s; no acknowledgement for %s", b.N, span(b.AtMS), b.What, span(b.DownMS))}
		if b.DownMS > 0 {
			m.DownX = x(b.DownFromMS)
			m.DownW = max(round1(x(b.DownFromMS+b.DownMS)-m.DownX), 1)
		}
		p.Marks = append(p.Marks, m)
	}
	step := tickStep(total)
	for ms := int64(0); ms <= total; ms += step {
		p.Ticks = append(p.Ticks, pageTick{X: x(ms), Text: span(ms)})
	}
	return p
}

// total is the length of the timeline in milliseconds.
func (r *Report) total() int64 {
	total := max(r.TookMS, int64(len(r.Seconds))*1000, 1000)
	for _, s := range r.Leases {
		total = max(total, s.ToMS)
	}
	return total
}

// tickStep gives about ten ticks.
func tickStep(total int64) int64 {
	for _, step := range []int64{1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000} {
		if total/step <= 12 {
			return step
		}
	}
	return total/10 + 1
}

// nodeClasses is how many colours the page has.
const nodeClasses = 8

// drawLeases draws a row for each range and returns where they end.
func (p *page) drawLeases(x func(int64) float64) int {
	for _, s := range p.Report.Leases {
		if !slices.ContainsFunc(p.Nodes, func(n pageNode) bool { return n.Name == s.Node }) {
			p.Nodes = append(p.Nodes, pageNode{Name: s.Node})
		}
	}
	slices.SortFunc(p.Nodes, func(a, b pageNode) int { return strings.Compare(a.Name, b.Name) })
	class := map[string]string{}
	for i := range p.Nodes {
		p.Nodes[i].Class = fmt.Sprintf("n%d", i%nodeClasses)
		class[p.Nodes[i].Name] = p.Nodes[i].Class
	}
	top := func(r int32) int { return 24 + int(r)*(rowHeight+rowGap) }
	for r := range p.Ranges {
		p.Rows = append(p.Rows, pageRow{Y: top(int32(r)) + 15, Text: fmt.Sprintf("range %d", r)})
	}
	for _, s := range p.Report.Leases {
		b := pageBar{X: x(s.FromMS), Y: top(s.Range), H: rowHeight, Class: class[s.Node]}
		b.W = max(round1(x(s.ToMS)-b.X), 1)
		if b.W > 40 {
			b.Text = fmt.Sprintf("%s · %d", s.Node, s.Epoch)
		}
		b.Tip = fmt.Sprintf("range %d: %s under epoch %d, %s to %s", s.Range, s.Node, s.Epoch, span(s.FromMS), span(s.ToMS))
		p.Bars = append(p.Bars, b)
	}
	return top(int32(p.Ranges))
}

// drawLatency draws p50 and p99 on a logarithmic scale from 1 ms.
func (p *page) drawLatency(y int, x func(int64) float64) {
	most := 10.0
	for _, s := range p.Seconds {
		most = max(most, s.P99MS)
	}
	decades := math.Ceil(math.Log10(most))
	p.Latency = pagePlot{Y: y, H: plotHeight, Bottom: y + plotHeight, Title: "latency of acknowledgements, p50 and p99 of each second (logarithmic)"}
	scale := func(ms float64) float64 {
		return round1(float64(p.Latency.Bottom) - math.Log10(max(ms, 1))/decades*plotHeight)
	}
	for d := 0.0; d <= decades; d++ {
		ms := math.Pow(10, d)
		p.Latency.Grid = append(p.Latency.Grid, pageGrid{Y: scale(ms), Text: span(int64(ms))})
	}
	p.Latency.Lines = []pageLine{
		{"p99", p.line(x, func(s Second) (float64, bool) { return scale(s.P99MS), s.Acked > 0 })},
		{"p50", p.line(x, func(s Second) (float64, bool) { return scale(s.P50MS), s.Acked > 0 })},
	}
}

func (p *page) drawRate(y int, x func(int64) float64) {
	most := 1
	for _, s := range p.Seconds {
		most = max(most, s.Acked)
	}
	p.Rate = pagePlot{Y: y, H: plotHeight, Bottom: y + plotHeight, Title: "records acknowledged in each second"}
	scale := func(n int) float64 {
		return round1(float64(p.Rate.Bottom) - float64(n)/float64(most)*plotHeight)
	}
	for _, n := range []int{0, most / 2, most} {
		p.Rate.Grid = append(p.Rate.Grid, pageGrid{Y: scale(n), Text: fmt.Sprint(n)})
	}
	p.Rate.Lines = []pageLine{{"rate", p.line(x, func(s Second) (float64, bool) { return scale(s.Acked), true })}}
}

// line gives the points of one curve. A second without a value has none.
func (p *page) line(x func(int64) float64, y func(Second) (float64, bool)) string {
	var b strings.Builder
	for _, s := range p.Seconds {
		if v, ok := y(s); ok {
			fmt.Fprintf(&b, "%g,%g ", x(int64(s.At)*1000+500), v)
		}
	}
	return strings.TrimSpace(b.String())
}

func round1(v float64) float64 { return math.Round(v*10) / 10 }

// Plots are drawn one below the other.
func (p *page) Plots() []pagePlot { return []pagePlot{p.Latency, p.Rate} }
