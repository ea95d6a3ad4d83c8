package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "What is well and what is not",
		Long: `Shows the cluster as the answering node sees it: its nodes, its ranges, and every problem with what to do.
Exit code 0 if all is well or only degraded, 1 if some range takes no writes or the node is in no cluster yet.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if err := o.print(cmd, s, func(w io.Writer) { drawStatus(w, s) }); err != nil {
				return err
			}
			return judge(s)
		},
	}
}

// judge is nil if every range takes writes, as far as the node can tell.
func judge(s *adminapi.Status) error {
	switch {
	case s.ClusterID == "":
		return &exitError{exitFailed, fmt.Errorf("node %s is in no cluster yet", s.Node)}
	case !s.Ready:
		return &exitError{exitFailed, fmt.Errorf("node %s is not ready: what the cluster is doing is not known here", s.Node)}
	case s.Health == "unavailable":
		return &exitError{exitFailed, fmt.Errorf("%d of %d ranges take no writes", s.Counts.Ranges-s.Counts.RangesServing, s.Counts.Ranges)}
	}
	return nil
}

func drawStatus(w io.Writer, s *adminapi.Status) {
	if s.ClusterID == "" {
		fmt.Fprintf(w, "node    %s, in no cluster yet\nwaits   %s\n", s.Node, orDash(s.Reason))
		return
	}
	if !s.Ready {
		fmt.Fprintf(w, "cluster %s\nnode    %s, not ready: it can't tell of the others\nwaits   %s\n", s.ClusterID, s.Node, orDash(s.Reason))
		return
	}
	fmt.Fprintf(w, "cluster %s, generation %d, feature level %d\n", s.ClusterID, s.Generation, s.FeatureLevel)
	fmt.Fprintf(w, "health  %s\nraft    leader %s, applied index %d on %s\n", s.Health, orDash(s.RaftLeader), s.AppliedIndex, s.Node)
	fmt.Fprintf(w, "nodes   %d of %d alive\n", s.Counts.NodesAlive, s.Counts.Nodes)
	fmt.Fprintf(w, "ranges  %d in %d topics: %d serving, %d promoting, %d unavailable\n\n",
		s.Counts.Ranges, s.Counts.Topics, s.Counts.RangesServing, s.Counts.RangesPromoting, s.Counts.RangesUnavailable)
	drawNodes(w, s.Nodes)
	drawDrills(w, s.Nodes)
	if len(s.PendingNodes) > 0 {
		fmt.Fprintln(w, "\nwaiting for a name that another disk holds:")
		var rows [][]string
		for _, p := range s.PendingNodes {
			rows = append(rows, []string{p.Name, p.StorageID, p.PeerAddr, p.Reason})
		}
		table(w, "NAME STORAGE ADDRESS REASON", rows)
	}
	if len(s.LostReplicas) > 0 {
		fmt.Fprintln(w, "\nreplicas that may have forgotten, and do not vote:")
		var rows [][]string
		for _, l := range s.LostReplicas {
			rows = append(rows, []string{l.Topic + "/" + strconv.Itoa(int(l.Range)), l.Node, strconv.FormatUint(l.ReplicaID, 10), l.Reason})
		}
		table(w, "RANGE NODE REPLICA REASON", rows)
	}
	if len(s.Problems) > 0 {
		fmt.Fprintln(w)
	}
	for _, p := range s.Problems {
		fmt.Fprintf(w, "%s: %s: %s\n", p.Kind, p.Subject, p.Message)
		if p.Hint != "" {
			fmt.Fprintf(w, "  %s\n", p.Hint)
		}
	}
}

// drawDrills names the nodes that drills may strike: they should not be forgotten in that state.
func drawDrills(w io.Writer, nodes []adminapi.Node) {
	var names []string
	for _, n := range nodes {
		if n.AllowsDrills {
			names = append(names, n.Name+" (comes back by "+n.ReturnsBy+")")
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(w, "\ndrills may kill, pause and wipe (--allow-drills): %s\n", strings.Join(names, ", "))
	}
}

func nodeCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "The nodes of the cluster"}
	cmd.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			nodes, err := c.Nodes(cmd.Context())
			if err != nil {
				return err
			}
			return o.print(cmd, nodes, func(w io.Writer) { drawNodes(w, nodes) })
		},
	})
	cmd.AddCommand(nodeDrainCommand(o), nodeRemoveCommand(o), nodeReplaceCommand(o), nodeSafeToStopCommand(o), nodeHashCommand(o))
	return cmd
}

func drawNodes(w io.Writer, nodes []adminapi.Node) {
	var rows [][]string
	for _, n := range nodes {
		alive := "no"
		if n.Alive {
			alive = "yes"
		}
		rows = append(rows, []string{
			n.Name, strconv.Itoa(int(n.ID)), n.State, alive, strconv.FormatUint(n.Incarnation, 10), n.RaftRole,
			strconv.Itoa(n.Leases), strconv.Itoa(n.Replicas), strconv.Itoa(n.CoordinatorSlots), orDash(n.Rack), n.DiskState, n.KafkaAddr, n.PeerAddr, n.AdminAddr,
		})
	}
	table(w, "NAME ID STATE ALIVE INCARNATION RAFT LEASES REPLICAS SLOTS RACK DISK KAFKA PEER ADMIN", rows)
}
