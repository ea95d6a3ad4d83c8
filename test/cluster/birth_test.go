//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// Five nodes are started in an odd order with three expected; some are wiped and started again before, while and after
// the cluster is born. There is never more than one cluster.
func TestBirth_FiveNodesInAnyOrderMakeOneCluster(t *testing.T) {
	for _, order := range [][]int{{4, 1, 3, 0, 2}, {0, 3, 1, 2, 4}, {2, 1, 0, 4, 3}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			c := harness.New(t, harness.Options{Nodes: 3, Flags: append([]string{"--heal-after", "3s"}, steady...)})
			c.AddNode()
			c.AddNode()
			for k, i := range order {
				c.Nodes[i].Start()
				if k == 1 { // wiped before the cluster can be born
					wipeAndStart(t, c.Nodes[i])
				}
			}
			wipeAndStart(t, c.Nodes[order[3]]) // while it is being born, or just after
			c.WaitReady()
			oneCluster(t, c)
			wipeAndStart(t, c.Nodes[0]) // a founder, after
			c.WaitReady()
			oneCluster(t, c)
		})
	}
}

func wipeAndStart(t *testing.T, n *harness.Node) {
	t.Helper()
	n.Kill()
	if err := os.RemoveAll(n.Dir); err != nil {
		t.Fatal(err)
	}
	n.Start()
}

// oneCluster waits until all nodes tell the same five names, and fails if they ever tell two cluster ids.
func oneCluster(t *testing.T, c *harness.Cluster) {
	t.Helper()
	ids := map[string]string{}
	c.Eventually(90*time.Second, "one cluster of five", func() error {
		for _, n := range c.Nodes {
			s, err := n.Status()
			if err != nil {
				return err
			}
			if s.ClusterID == "" || !s.Ready {
				return fmt.Errorf("%s is not ready: %s", n.Name, s.Reason)
			}
			ids[s.ClusterID] = n.Name
			if len(s.Nodes) != 5 || s.Counts.NodesAlive != 5 {
				return fmt.Errorf("%s knows %d nodes, %d alive", n.Name, len(s.Nodes), s.Counts.NodesAlive)
			}
		}
		return nil
	})
	if len(ids) != 1 {
		t.Fatalf("more than one cluster: %v", ids)
	}
	leaders := 0
	nodes, err := c.NodeLines()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.RaftRole == "leader" {
			leaders++
		}
	}
	if leaders != 1 {
		t.Errorf("%d Raft leaders in %+v", leaders, nodes)
	}
}
