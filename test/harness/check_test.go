package harness

import (
	"strings"
	"testing"
)

// A check that cannot fail checks nothing: each planted breach is found, and named.
func TestCheckLedger_FindsPlantedBreaches(t *testing.T) {
	acks := []Ack{{ID: 1, Offset: 0}, {ID: 2, Offset: 1}, {ID: 3, Offset: 2}}
	good := []Read{{1, 0, 0, 1}, {2, 0, 1, 1}, {3, 0, 2, 1}}
	if err := CheckLedger(acks, good); err != nil {
		t.Fatalf("a good log: %v", err)
	}
	for name, c := range map[string]struct {
		read []Read
		want string
	}{
		"lost":       {[]Read{{1, 0, 0, 1}, {3, 0, 2, 1}}, "K1"},
		"moved":      {[]Read{{1, 0, 0, 1}, {2, 0, 1, 1}, {3, 0, 3, 1}}, "K1"},
		"duplicated": {[]Read{{1, 0, 0, 1}, {2, 0, 1, 1}, {3, 0, 2, 1}, {3, 0, 3, 1}}, "K4"},
		"rewritten":  {[]Read{{1, 0, 0, 1}, {2, 0, 1, 1}, {3, 0, 2, 1}, {9, 0, 2, 1}}, "K2"},
		"old epoch":  {[]Read{{1, 0, 0, 1}, {2, 0, 1, 2}, {3, 0, 2, 1}}, "K6"},
		"reordered":  {[]Read{{2, 0, 0, 1}, {1, 0, 1, 1}, {3, 0, 2, 1}}, "order"},
	} {
		if err := CheckLedger(acks, c.read); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	if err := CheckPlainLedger(acks, append(good, Read{3, 0, 3, 1}, Read{1, 0, 4, 1})); err != nil {
		t.Errorf("copies of a producer that isn't idempotent: %v", err)
	}
	if err := CheckPlainLedger(acks, good[1:]); err == nil || !strings.Contains(err.Error(), "K1") {
		t.Errorf("a record of such a producer is lost: %v", err)
	}
}

func TestPayload_RoundTripAndDamage(t *testing.T) {
	for _, size := range []int{24, 100, 1024} {
		b := Payload(77, size)
		if id, err := PayloadID(b); err != nil || id != 77 {
			t.Fatalf("size %d: %d, %v", size, id, err)
		}
		b[size/2] ^= 1
		if _, err := PayloadID(b); err == nil {
			t.Fatalf("size %d: a flipped bit was not seen", size)
		}
	}
}
