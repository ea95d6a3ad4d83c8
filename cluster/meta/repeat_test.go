package meta

import (
	"testing"

	"github.com/vtop-log/vtop/fsm"
)

// A command whose outcome is not known is proposed again only if a second entry is answered as the first. A grant would be refused as
// outdated though it was taken, and so would what a coordinator of groups proposed: it repeats by itself, under a new sequence.
func TestRepeatable(t *testing.T) {
	for _, c := range []struct {
		cmd  fsm.Command
		want bool
	}{
		{&fsm.GrantLeases{}, false},
		{&fsm.GrantCoordinators{}, false},
		{&fsm.UpdateGroups{}, false},
		{&fsm.ChangeReplicas{}, false},
		{&fsm.CreateRanges{}, false},
		{&fsm.AlterTopicConfig{Expected: 3}, false},
		{&fsm.AlterTopicConfig{}, true},
		{&fsm.ReleaseCoordinators{}, true},
		{&fsm.ReleaseLeases{}, true},
		{&fsm.ReportFloors{}, true},
	} {
		if got := repeatable(c.cmd); got != c.want {
			t.Errorf("%s: repeatable %t, want %t", c.cmd.Op(), got, c.want)
		}
	}
}
