package drill

import (
	"fmt"
)

// Names of the checks, and what each holds.
const (
	K1 = "K1"
	K2 = "K2"
	K3 = "K3"
	K4 = "K4"
	K5 = "K5"
	K6 = "K6"
)

// promises are what the checks hold, in their order.
var promises = []struct{ name, text string }{
	{K1, "every acknowledged record is at the offset it was acknowledged at"},
	{K2, "an offset has one value, for all readers and for ever"},
	{K3, "ends and starts that a client saw never go back"},
	{K4, "the idempotent producer's records are there once and in order"},
	{K5, "below the floor every replica is whole, byte by byte"},
	{K6, "one holder for each epoch, and epochs rise"},
}

// Breach is one broken promise.
type Breach struct {
	// Check is K1 to K6.
	Check string `json:"check"`
	Text  string `json:"text"`
}

func breach(check, format string, args ...any) Breach {
	return Breach{Check: check, Text: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (b Breach) Error() string { return b.Check + ": " + b.Text }

// NotInLedger is the id of records that others wrote.
const NotInLedger = 0

// Read is one record as it was read back.
type Read struct {
	// ID is NotInLedger for a record of others.
	ID     uint64
	Range  int32
	Offset int64
	// Epoch is the leader epoch in the record's batch; 0 if it was not looked at.
	Epoch int32
	// Sum tells values apart; 0 if it was not taken.
	Sum uint64
}

type place struct {
	r      int32
	offset int64
}

// String is RANGE/OFFSET.
func (p place) String() string { return fmt.Sprintf("%d/%d", p.r, p.offset) }

// CheckLedger holds what was read, each range from start to end in the order of offsets, against what was acknowledged: K1
// at or above starts, K2, K4 with the order within each range, and the epochs of K6. A range that starts has not is taken
// to begin at 0.
func CheckLedger(acks []Ack, read []Read, starts map[int32]int64) []Breach {
	return checkLedger(acks, read, starts, true)
}

// CheckPlainLedger is CheckLedger for a producer that is not idempotent: its records may be there twice, and out of order.
func CheckPlainLedger(acks []Ack, read []Read, starts map[int32]int64) []Breach {
	return checkLedger(acks, read, starts, false)
}

func checkLedger(acks []Ack, read []Read, starts map[int32]int64, idempotent bool) []Breach {
	var out []Breach
	at := make(map[place]Read, len(read))
	byID := make(map[uint64]place, len(read))
	last := map[int32]uint64{}
	epochs := map[int32]int32{}
	for _, r := range read {
		p := place{r.Range, r.Offset}
		if other, ok := at[p]; ok && (other.ID != r.ID || other.Sum != r.Sum) {
			out = append(out, breach(K2, "offset %s has record %d and record %d", p, other.ID, r.ID))
		}
		at[p] = r
		if r.Epoch < epochs[r.Range] {
			out = append(out, breach(K6, "offset %s was written under epoch %d, behind records of epoch %d", p, r.Epoch, epochs[r.Range]))
		}
		epochs[r.Range] = r.Epoch
		if r.ID == NotInLedger || !idempotent {
			continue
		}
		if other, ok := byID[r.ID]; ok && other != p {
			out = append(out, breach(K4, "record %d stands at %s and at %s", r.ID, other, p))
		}
		if r.ID <= last[r.Range] {
			out = append(out, breach(K4, "order: range %d has record %d behind record %d", r.Range, r.ID, last[r.Range]))
		}
		byID[r.ID], last[r.Range] = p, r.ID
	}
	for _, a := range acks {
		p := place{a.Range, a.Offset}
		if a.Offset < starts[a.Range] {
			continue
		}
		if got, ok := at[p]; !ok {
			out = append(out, breach(K1, "record %d was acknowledged at %s, where nothing stands", a.ID, p))
		} else if got.ID != a.ID {
			out = append(out, breach(K1, "record %d was acknowledged at %s, where record %d stands", a.ID, p, got.ID))
		}
	}
	return out
}

// maxBreaches of one check are told.
const maxBreaches = 10

// Check is one check as it came out.
type Check struct {
	Name    string `json:"name"`
	Promise string `json:"promise"`
	Held    bool   `json:"held"`
	// Looked is how much was looked at, in the words of Of. A check that looked at nothing did not hold.
	Looked int64  `json:"looked"`
	Of     string `json:"of"`
	// Breaches are the first ones; Count is how many there were.
	Breaches []string `json:"breaches"`
	Count    int      `json:"count"`
	// Unknown says what could not be looked at; such a check did not hold (I12).
	Unknown string `json:"unknown,omitempty"`
}

// checksOf sums up: looked and unknown are by the name of the check.
func checksOf(breaches []Breach, looked map[string]looked, unknown map[string]string) []Check {
	out := make([]Check, 0, len(promises))
	for _, p := range promises {
		c := Check{Name: p.name, Promise: p.text, Looked: looked[p.name].n, Of: looked[p.name].of, Breaches: []string{}, Unknown: unknown[p.name]}
		for _, b := range breaches {
			if b.Check != p.name {
				continue
			}
			if c.Count++; len(c.Breaches) < maxBreaches {
				c.Breaches = append(c.Breaches, b.Text)
			}
		}
		if c.Looked == 0 && c.Unknown == "" {
			c.Unknown = "there was nothing to look at"
		}
		c.Held = c.Count == 0 && c.Unknown == ""
		out = append(out, c)
	}
	return out
}

// looked is how much a check looked at.
type looked struct {
	n  int64
	of string
}
