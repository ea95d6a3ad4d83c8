package harness

import (
	"strings"
	"testing"
)

// A check that cannot fail checks nothing: each planted breach is found, and named.
func TestCheckLedger_FindsPlantedBreaches(t *testing.T) {
	acks := []Ack{{ID: 1, Offset: 0}, {ID: 2, Offset: 1}, {ID: 3, Offset: 2}}
	good := []Read{{1, 0, 0}, {2, 0, 1}, {3, 0, 2}}
	if err := CheckLedger(acks, good); err != nil {
		t.Fatalf("a good log: %v", err)
	}
	for name, c := range map[string]struct {
		read []Read
		want string
	}{
		"lost":       {[]Read{{1, 0, 0}, {3, 0, 2}}, "K1"},
		"moved":      {[]Read{{1, 0, 0}, {2, 0, 1}, {3, 0, 3}}, "K1"},
		"duplicated": {[]Read{{1, 0, 0}, {2, 0, 1}, {3, 0, 2}, {3, 0, 3}}, "K4"},
		"rewritten":  {[]Read{{1, 0, 0}, {2, 0, 1}, {3, 0, 2}, {9, 0, 2}}, "K2"},
		"reordered":  {[]Read{{2, 0, 0}, {1, 0, 1}, {3, 0, 2}}, "order"},
	} {
		if err := CheckLedger(acks, c.read); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
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
