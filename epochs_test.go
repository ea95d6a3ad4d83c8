package vtop

import (
	"slices"
	"testing"
)

func table(t *testing.T, entries ...EpochStart) EpochTable {
	t.Helper()
	var tab EpochTable
	for _, e := range entries {
		next, err := tab.With(e.Epoch, e.Start)
		if err != nil {
			t.Fatal(err)
		}
		tab = next
	}
	return tab
}

func TestEpochTable_With(t *testing.T) {
	for name, c := range map[string]struct {
		entries []EpochStart
		want    EpochTable
	}{
		"rising epochs and starts are all kept":                {[]EpochStart{{1, 0}, {2, 5}, {4, 9}}, EpochTable{{1, 0}, {2, 5}, {4, 9}}},
		"an empty epoch vanishes":                              {[]EpochStart{{1, 0}, {2, 5}, {3, 5}}, EpochTable{{1, 0}, {3, 5}}},
		"a lower later start removes every entry it overtakes": {[]EpochStart{{1, 0}, {2, 5}, {3, 8}, {4, 5}}, EpochTable{{1, 0}, {4, 5}}},
		"a start at zero removes everything":                   {[]EpochStart{{1, 0}, {2, 5}, {3, 0}}, EpochTable{{3, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := table(t, c.entries...); !slices.Equal(got, c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestEpochTable_WithRefusesEpochThatDoesNotRise(t *testing.T) {
	tab := table(t, EpochStart{3, 7})
	for _, e := range []Epoch{2, 3} {
		if _, err := tab.With(e, 9); err == nil {
			t.Fatalf("epoch %d after 3 was taken", e)
		}
	}
}

func TestEpochTable_WithLeavesTheOldTableAlone(t *testing.T) {
	old := table(t, EpochStart{1, 0}, EpochStart{2, 5})
	before := slices.Clone(old)
	table := append(EpochTable(nil), old...)
	if _, err := old.With(3, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := old.With(3, 9); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(old, before) || !slices.Equal(table, before) {
		t.Fatalf("table was edited in place: %v, was %v", old, before)
	}
}

func TestEpochTable_Trim(t *testing.T) {
	tab := EpochTable{{1, 0}, {2, 5}, {3, 9}}
	for _, c := range []struct {
		start Offset
		want  EpochTable
	}{{0, tab}, {4, tab}, {5, tab[1:]}, {8, tab[1:]}, {9, tab[2:]}, {100, tab[2:]}} {
		if got := tab.Trim(c.start); !slices.Equal(got, c.want) {
			t.Fatalf("Trim(%d) = %v, want %v", c.start, got, c.want)
		}
	}
}

// I8: only what the table proves divergent is cut, at its lowest offset.
func TestEpochTable_Cut(t *testing.T) {
	for name, c := range map[string]struct {
		tab  EpochTable
		runs []EpochRun
		end  Offset
		cut  Offset
		ok   bool
	}{
		"a log that follows the table keeps all":                   {EpochTable{{1, 0}, {2, 5}}, []EpochRun{{1, 0}, {2, 5}}, 9, 0, false},
		"an empty table knows nothing and cuts nothing":            {nil, []EpochRun{{1, 0}}, 9, 0, false},
		"a suffix beyond the span of its epoch goes":               {EpochTable{{1, 0}, {2, 5}}, []EpochRun{{1, 0}}, 8, 5, true},
		"a suffix that ends where the next epoch starts stays":     {EpochTable{{1, 0}, {2, 5}}, []EpochRun{{1, 0}}, 5, 0, false},
		"records of an epoch that vanished go":                     {EpochTable{{1, 0}, {4, 5}}, []EpochRun{{1, 0}, {2, 5}, {3, 8}}, 9, 5, true},
		"the lowest later start decides, not the next one":         {EpochTable{{1, 0}, {4, 3}}, []EpochRun{{1, 0}, {2, 5}}, 9, 3, true},
		"records below known history are never cut":                {EpochTable{{5, 100}}, []EpochRun{{2, 0}, {5, 100}}, 120, 0, false},
		"known history begins in the middle of a run of old epoch": {EpochTable{{5, 100}}, []EpochRun{{2, 0}}, 120, 100, true},
		"an epoch that begins below its span goes from there":      {EpochTable{{1, 0}, {2, 5}}, []EpochRun{{1, 0}, {2, 3}}, 9, 3, true},
		"an empty log has nothing to cut":                          {EpochTable{{1, 0}}, nil, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			cut, ok := c.tab.Cut(c.runs, c.end)
			if cut != c.cut || ok != c.ok {
				t.Fatalf("Cut = %d, %v, want %d, %v", cut, ok, c.cut, c.ok)
			}
		})
	}
}

func TestUUID_RoundTripAndRefusal(t *testing.T) {
	u := UUID{0x12, 0x34, 15: 0xff}
	got, err := ParseUUID(u.String())
	if err != nil || got != u {
		t.Fatalf("ParseUUID(%q) = %v, %v", u, got, err)
	}
	for _, bad := range []string{"", "12340000-0000-0000-0000-0000000000f", "12340000x0000-0000-0000-0000000000ff", "zz340000-0000-0000-0000-0000000000ff"} {
		if _, err := ParseUUID(bad); err == nil {
			t.Fatalf("ParseUUID(%q) was taken", bad)
		}
	}
}
