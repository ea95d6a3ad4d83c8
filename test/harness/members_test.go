package harness

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// What members are held to can fail: offsets that go back, that are below what was acknowledged, or gone, and records that never came.
func TestMembers_FindPlantedBreaches(t *testing.T) {
	told := func(at int64) kadm.OffsetResponses {
		out := kadm.OffsetResponses{}
		if at >= 0 {
			out.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "t", Partition: 0, At: at}})
		}
		return out
	}
	for name, c := range map[string]struct {
		least   int64
		answers []int64
		breach  bool
	}{
		"as it should be":        {5, []int64{5, 7, 7}, false},
		"goes back":              {0, []int64{7, 6}, true},
		"below the acknowledged": {8, []int64{7}, true},
		"gone":                   {1, []int64{-1}, true},
	} {
		m := &Members{group: "g", topic: "t"}
		last := map[int32]int64{}
		for _, at := range c.answers {
			m.compare(told(at), map[int32]int64{0: c.least}, last)
		}
		if got := len(m.Breaches()) > 0; got != c.breach {
			t.Errorf("%s: breaches %v", name, m.Breaches())
		}
	}
	m := &Members{group: "g", topic: "t", seen: map[uint64]bool{1: true}, committed: map[int32]int64{0: 2}}
	acks := []Ack{{ID: 1, Offset: 0}, {ID: 2, Offset: 1}}
	if err := m.Reached(map[int32]int64{0: 2}, acks[:1]); err != nil {
		t.Error(err)
	}
	if err := m.Reached(map[int32]int64{0: 3}, nil); err == nil {
		t.Error("commits that are behind the end are taken for reached")
	}
	if err := m.Reached(map[int32]int64{0: 2}, acks); err == nil || !strings.Contains(err.Error(), "record 2") {
		t.Errorf("a record that was never delivered: %v", err)
	}
}
