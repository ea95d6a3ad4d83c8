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
	silences map[string][]time.Duration
	skipped  map[string]string
	rounds   int
	lives    int
}

func newReport() *report {
	return &report{silences: map[string][]time.Duration{}, skipped: map[string]string{}}
}

// String is the table: how long no record was acknowledged in the range that waited longest.
func (r *report) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d lives, %d rounds; longest time without an acknowledged record from the blow on, in the range of %s that waited longest:\n", r.lives, r.rounds, exact)
	tab := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "fault\tblows\tmedian\tworst")
	for _, name := range slices.Sorted(maps.Keys(r.silences)) {
		all := slices.Sorted(slices.Values(r.silences[name]))
		fmt.Fprintf(tab, "%s\t%d\t%s\t%s\n", name, len(all), short((all[(len(all)-1)/2]+all[len(all)/2])/2), short(all[len(all)-1]))
	}
	_ = tab.Flush()
	for _, name := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(&out, "did not run: %s: %s\n", name, r.skipped[name])
	}
	return out.String()
}

func short(d time.Duration) string {
	return d.Round(cmp.Or(map[bool]time.Duration{true: time.Millisecond}[d < time.Second], 10*time.Millisecond)).String()
}
