package meta

import (
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/transporttest"
)

// startTestGossip runs the gossip of a node of one cluster until the test ends.
func startTestGossip(t *testing.T, name vtop.NodeName, addr string) *gossip {
	t.Helper()
	g, err := startGossip(gossipConfig{
		cluster: vtop.ClusterID{1}, self: nodeMeta{Name: name, Storage: vtop.StorageID{name[0]}, Incarnation: 1, ServerID: "s", Peer: "127.0.0.1:1"},
		bind: addr, probeInterval: 100 * time.Millisecond, log: hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	return g
}

// The list of members is read while nodes say anew who they are; what memberlist gives out it goes on writing to. The race detector
// is what looks here.
func TestGossip_MembersWhileOneSpeaks(t *testing.T) {
	there := transporttest.FreeAddr(t)
	a, b := startTestGossip(t, "a", there), startTestGossip(t, "b", transporttest.FreeAddr(t))
	if _, err := b.list.Join([]string{there}); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	w.until("both to know each other", func() bool { return len(a.members()) == 2 && len(b.members()) == 2 })
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			a.members()
		}
	})
	for range 5 {
		if err := b.list.UpdateNode(time.Minute); err != nil { // returns when it was told on
			t.Error(err)
		}
	}
	close(stop)
	reader.Wait()
}
