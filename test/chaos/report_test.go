//go:build cluster

package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what all lives of a run saw, by kind of fault.
type report struct {
	silences map[string]*silences
	skipped  map[string]string
	rounds   int
	lives    int
}

// silences are how long no record was acknowledged, from each blow of a kind on: those struck by themselves, and those while another
// fault lasted, which may have cost the time.
type silences struct {
	alone, overlapped []time.Duration
}

func newReport() *report {
	return &report{silences: map[string]*silences{}, skipped: map[string]string{}}
}

// saw takes the silence that a fault of a round began.
func (r *report) saw(fault string, among int, silence time.Duration) {
	s := r.silences[fault]
	if s == nil {
		s = new(silences)
		r.silences[fault] = s
	}
	if among == 1 {
		s.alone = append(s.alone, silence)
	} else {
		s.overlapped = append(s.overlapped, silence)
	}
}

// String is the table: how long no record was acknowledged in the range that waited longest.
func (r *report) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d lives, %d rounds; longest time without an acknowledged record from the blow on, in the range of %s that waited longest:\n", r.lives, r.rounds, exact)
	tab := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "\tby itself\t\t\twhile another fault lasted\t\t")
	fmt.Fprintln(tab, "fault\tblows\tmedian\tworst\tblows\tmedian\tworst")
	for _, name := range slices.Sorted(maps.Keys(r.silences)) {
		s := r.silences[name]
		fmt.Fprintf(tab, "%s\t%s\t%s\n", name, columns(s.alone), columns(s.overlapped))
	}
	_ = tab.Flush()
	for _, name := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(&out, "did not run: %s: %s\n", name, r.skipped[name])
	}
	return out.String()
}

// columns are how many there are, the median and the worst.
func columns(all []time.Duration) string {
	if len(all) == 0 {
		return "0\t-\t-"
	}
	all = slices.Sorted(slices.Values(all))
	return fmt.Sprintf("%d\t%s\t%s", len(all), short((all[(len(all)-1)/2]+all[len(all)/2])/2), short(all[len(all)-1]))
}

func short(d time.Duration) string {
	return d.Round(cmp.Or(map[bool]time.Duration{true: time.Millisecond}[d < time.Second], 10*time.Millisecond)).String()
}
