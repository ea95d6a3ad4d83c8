package replica

import (
	"testing"

	"github.com/vtop-log/vtop"
)

// C1, C4: a holder that is cut off answers for the end until its deadline, and its follower leads already. A client can tell the
// old word from the new one only by the epoch of the answer, also before the first record of the new epoch.
func TestEngine_EndIsToldUnderTheEpochOfItsLeader(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "x")
	c.awaitSame("a", r)
	before, err := c.nodes["a"].engine.EndOffset(r, vtop.AnyEpoch)
	if err != nil {
		t.Fatal(err)
	}
	c.kill("a")
	c.lead("b", r)
	var after vtop.EpochOffset
	c.await("the end from the new leader", func() bool {
		after, err = c.nodes["b"].engine.EndOffset(r, vtop.AnyEpoch)
		return err == nil
	})
	if after.Offset != before.Offset || after.Epoch <= before.Epoch {
		t.Errorf("the old leader told end %d of epoch %d, the new one %d of epoch %d: want the same end under a later epoch", before.Offset, before.Epoch, after.Offset, after.Epoch)
	}
}
