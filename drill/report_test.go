package drill

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample is the report of a drill of eight seconds with two blows.
func sample() *Report {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	r := &Report{
		Drill: "leader-kill", Topic: "vtop-drill", Cluster: "7f0c", OwnTopic: true, Started: start, TookMS: 8000, Ranges: 2, Replicas: 3,
		Load:     Load{PerSecond: 100, RecordSize: 256, Sent: 700, Acked: 700, Read: 700},
		Blows:    []Blow{{N: 1, What: "kill -9 of n1, which leads range 0", Node: "n1", AtMS: 2000, WholeMS: 1500}, {N: 2, What: "kill -9 of n2 <&>", Node: "n2", Range: 1, AtMS: 5000, WholeMS: 900}},
		Leases:   []Span{{0, "n1", 1, 0, 2000}, {0, "n2", 2, 2400, 8000}, {1, "n2", 1, 0, 5000}, {1, "n3", 2, 5300, 8000}},
		Notes:    []string{"a blow was held back: n3 is not safe to stop"},
		Failures: []string{},
	}
	var acks []Ack
	for ms := 0; ms < 8000; ms += 10 {
		n := int32(ms / 10 % 2)
		lat := 5
		if n == 0 && ms >= 2000 && ms < 2400 || n == 1 && ms >= 5000 && ms < 5300 {
			continue
		}
		if ms%1000 == 0 {
			lat = 80
		}
		acks = append(acks, Ack{ID: uint64(ms), Range: n, Offset: int64(ms / 20), Sent: at(ms - lat), At: at(ms)})
	}
	r.measure(acks, at(8000))
	all := map[string]looked{}
	for _, p := range promises {
		all[p.name] = looked{700, "records"}
	}
	r.Checks = checksOf(nil, all, nil)
	return r
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is drawn now; if that is right: go test ./drill -update\n%s", path, got)
	}
}

func TestReport_Golden(t *testing.T) {
	r := sample()
	var text, page bytes.Buffer
	r.Draw(&text)
	golden(t, "report.txt", text.Bytes())
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.html", page.Bytes())
	for _, never := range []string{"<script", "http://", "https://", "url(", "@import", "ZgotmplZ", "<&>"} {
		if strings.Contains(page.String(), never) {
			t.Errorf("the page has %q", never)
		}
	}
	// Case: its picture is well formed, whoever draws it.
	svg := page.String()
	svg = svg[strings.Index(svg, "<svg"):]
	svg = svg[:strings.Index(svg, "</svg>")+len("</svg>")]
	dec := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// Case: names that scripts rely on.
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"drill", "topic", "blows", "unavailability", "checks", "seconds", "leases", "notes", "failures", "load", "interrupted"} {
		if _, ok := back[name]; !ok {
			t.Errorf("no %q in JSON", name)
		}
	}
}

func TestReport_UnavailabilityIsTheLongestSilenceOfAnyRange(t *testing.T) {
	r := sample()
	if b := r.Blows[0]; b.DownMS != 400 || b.DownFromMS != 2000 || b.DownRange != 0 {
		t.Errorf("the first blow: %+v, want 400 ms from 2000 on range 0", b)
	}
	if r.Down != (Down{Blows: 2, MedianMS: 310, WorstMS: 400}) {
		t.Errorf("median and worst: %+v", r.Down)
	}
	// Case: a silence from before the blow counts from the blow on.
	if from, gap, ok := longestGap([]int64{0, 90, 500, 510}, 100, 505); !ok || from != 100 || gap != 400 {
		t.Errorf("got %d from %d, %v", gap, from, ok)
	}
	// Case: one that begins when all is whole again is not this blow's.
	if _, gap, ok := longestGap([]int64{0, 110, 120, 900}, 100, 115); !ok || gap != 10 {
		t.Errorf("got %d, %v", gap, ok)
	}
	// Case: nothing came afterwards; that is worse than anything that did.
	if _, _, ok := longestGap([]int64{0, 50}, 100, 1000); ok {
		t.Error("a silence without an end was measured")
	}
	if d := downOf([]int64{300, -1, 20}); d.WorstMS != -1 || d.MedianMS != 300 {
		t.Errorf("got %+v", d)
	}
}

func TestReport_HeldOnlyIfBlowsFellAndAllChecksHeld(t *testing.T) {
	for name, spoil := range map[string]func(*Report){
		"FAILED: K4 did not hold":                    func(r *Report) { r.Checks[3].Held = false },
		"FAILED: no blow fell, so nothing was shown": func(r *Report) { r.Blows = nil },
		"FAILED: blow 1 was not healed":              func(r *Report) { r.Failures = append(r.Failures, "blow 1 was not healed") },
		"FAILED: no checks":                          func(r *Report) { r.Checks = nil; r.Failures = []string{"no checks"} },
	} {
		r := sample()
		if spoil(r); r.Held() || r.Verdict() != name {
			t.Errorf("%s: held %v, verdict %q", name, r.Held(), r.Verdict())
		}
	}
	r := sample()
	if !r.Held() || r.Verdict() != "2 blows, every check held" {
		t.Errorf("a good drill: %v, %q", r.Held(), r.Verdict())
	}
	if r.Interrupted = true; !r.Held() || !strings.HasPrefix(r.Verdict(), "interrupted after 2 blows") {
		t.Errorf("an interrupted one: %v, %q", r.Held(), r.Verdict())
	}
}

// Nothing at all is drawn, too: a drill that failed early has a page.
func TestReport_EmptyIsDrawn(t *testing.T) {
	r := &Report{Drill: "repair"}
	r.measure(nil, r.Started)
	r.Draw(io.Discard)
	if err := r.HTML(io.Discard); err != nil {
		t.Fatal(err)
	}
}
