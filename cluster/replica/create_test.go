package replica

import (
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// J3: a topic is made and deleted at once, as a node that comes back hears of it. The directories that it began to make are made
// after the deletion was seen to: they go all the same.
func TestCreateMissing_TopicIsDeletedMeanwhile(t *testing.T) {
	c := newCluster(t, 1, 1)
	made := c.createTopic("brief", 2, nil, "a")
	old := c.state()
	ranges := []vtop.Range{{Topic: made, Index: 0}, {Topic: made, Index: 1}}
	c.mustPropose(&fsm.DeleteTopic{ID: made})
	a := c.nodes["a"]
	gone := func() bool {
		a.engine.slotsMu.RLock()
		defer a.engine.slotsMu.RUnlock()
		return a.store.Get(ranges[0]) == nil && a.store.Get(ranges[1]) == nil && a.engine.slots[ranges[0]] == nil && a.engine.slots[ranges[1]] == nil
	}
	c.await("the deletion to be seen to", gone)
	a.engine.createMissing(old, ranges)
	c.await("the directories of a deleted topic to go", gone)
}
