package drill

import (
	"sync"
	"time"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// Span is a time in which one node led one range under one epoch, as it was seen.
type Span struct {
	Range int32  `json:"range"`
	Node  string `json:"node"`
	Epoch int32  `json:"epoch"`
	// FromMS and ToMS count from the start of the drill.
	FromMS int64 `json:"from_ms"`
	ToMS   int64 `json:"to_ms"`
}

type epochOf struct {
	r     int32
	epoch int32
}

// Leases remembers who led what: it holds K6 and draws the timeline. It is safe for concurrent use.
type Leases struct {
	started time.Time

	mu       sync.Mutex
	holders  map[epochOf]string
	highest  map[int32]int32
	spans    []Span
	open     map[int32]int // index of the range's last span
	breaches []Breach
	looks    int64
}

// NewLeases counts from started.
func NewLeases(started time.Time) *Leases {
	return &Leases{started: started, holders: map[epochOf]string{}, highest: map[int32]int32{}, open: map[int32]int{}}
}

// Saw takes in what some node told at a time. A node may be late: an older epoch than the highest seen draws nothing, but its
// holder counts.
func (l *Leases) Saw(at time.Time, leases []adminapi.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	ms := at.Sub(l.started).Milliseconds()
	for i := range leases {
		s := &leases[i]
		if s.Epoch < l.highest[s.Range] {
			l.heldLocked(s.Range, s.Epoch, s.Holder)
			continue
		}
		l.highest[s.Range] = s.Epoch
		if l.heldLocked(s.Range, s.Epoch, s.Holder); s.Holder == "" || s.State != "serving" {
			delete(l.open, s.Range)
			continue
		}
		n, ok := l.open[s.Range]
		if ok && l.spans[n].Node == s.Holder && l.spans[n].Epoch == s.Epoch {
			l.spans[n].ToMS = ms
			continue
		}
		l.open[s.Range] = len(l.spans)
		l.spans = append(l.spans, Span{Range: s.Range, Node: s.Holder, Epoch: s.Epoch, FromMS: ms, ToMS: ms})
	}
}

// heldLocked notes who held an epoch; nobody does while a lease is free.
func (l *Leases) heldLocked(r, epoch int32, holder string) {
	if holder == "" {
		return
	}
	key := epochOf{r, epoch}
	if before, ok := l.holders[key]; ok && before != holder {
		l.breaches = append(l.breaches, breach(K6, "range %d, epoch %d was held by %s and by %s", r, epoch, before, holder))
	}
	l.holders[key] = holder
}

// History takes in what the cluster remembers of a range in the end.
func (l *Leases) History(d *adminapi.LeaseDetail) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.Epoch < l.highest[d.Range] {
		l.breaches = append(l.breaches, breach(K6, "range %d is at epoch %d, and epoch %d was seen before", d.Range, d.Epoch, l.highest[d.Range]))
	}
	l.heldLocked(d.Range, d.Epoch, d.Holder)
	for i, e := range d.Epochs {
		if i > 0 && (e.Epoch <= d.Epochs[i-1].Epoch || e.Start < d.Epochs[i-1].Start) {
			l.breaches = append(l.breaches, breach(K6, "epoch table of range %d: epoch %d at %d stands behind epoch %d at %d", d.Range, e.Epoch, e.Start, d.Epochs[i-1].Epoch, d.Epochs[i-1].Start))
		}
	}
	for i, c := range d.Changes { // newest first
		l.heldLocked(d.Range, c.Epoch, c.Holder)
		if i > 0 && c.Epoch > d.Changes[i-1].Epoch {
			l.breaches = append(l.breaches, breach(K6, "range %d went from epoch %d to epoch %d", d.Range, c.Epoch, d.Changes[i-1].Epoch))
		}
	}
}

// Outcome gives the spans, the breaches, and how many leases were seen: pairs of range and epoch with their holder.
func (l *Leases) Outcome() (spans []Span, breaches []Breach, seen int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Span{}, l.spans...), append([]Breach(nil), l.breaches...), int64(len(l.holders))
}
