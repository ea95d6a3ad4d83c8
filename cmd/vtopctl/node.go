package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func drawReasons(w io.Writer, title string, reasons []adminapi.Reason) {
	if len(reasons) > 0 {
		fmt.Fprintln(w, title)
	}
	for _, r := range reasons {
		fmt.Fprintf(w, "  %s: %s\n", r.Subject, r.Message)
		if r.Hint != "" {
			fmt.Fprintf(w, "    %s\n", r.Hint)
		}
	}
}

func nodeDrainCommand(o *options) *cobra.Command {
	var req adminapi.DrainRequest
	var noWait bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Empty a node: its leases leave, then its replicas",
		Long: `Marks a node as draining. Its leases go to other voters at once; its replicas are rebuilt on other nodes and leave when
those vote, so that no range has fewer copies at any time. The mark is kept by the cluster: it outlives the node's
restart and this command. An empty node may be stopped and removed; --cancel makes it active again.

Before stopping a node for a while, drain nothing: ask node safe-to-stop, and stop it.

Exit code 0 empty (with --no-wait: marked), 1 a replica has nowhere to go, 2 wrong usage or no answer, 3 refused.`,
		Example: "  vtopctl node drain n2\n  vtopctl node drain n2 --dry-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := o.fleet()
			if err != nil {
				return err
			}
			d, err := ask(cmd.Context(), f, askLong, func(ctx context.Context, c *adminapi.Client) (*adminapi.DrainResult, error) {
				return c.DrainNode(ctx, args[0], req)
			})
			if err != nil {
				return notStarted(err)
			}
			if !req.Cancel && !req.DryRun && !noWait {
				if d, err = o.awaitDrain(cmd, f, d, patience); err != nil {
					return err
				}
			}
			err = o.print(cmd, d, func(w io.Writer) { drawDrain(w, d) })
			if !req.Cancel && !noWait && len(d.Stuck) > 0 && !d.Done {
				err = errors.Join(err, &exitError{exitFailed, fmt.Errorf("%d replicas of %s have nowhere to go", len(d.Stuck), d.Node)})
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&req.Cancel, "cancel", false, "make the node active again; what has left stays where it is")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "say what would leave, and change nothing")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "mark the node and return")
	patienceFlag(cmd, &patience)
	return cmd
}

// awaitDrain waits until nothing is left on the node, or all that is left is stuck.
func (o *options) awaitDrain(cmd *cobra.Command, f *fleet, d *adminapi.DrainResult, patience time.Duration) (*adminapi.DrainResult, error) {
	ctx := cmd.Context()
	f.learn(ctx)
	node, told, silent := d.Node, "", time.Now()
	for !d.Done && (len(d.Repairs) > 0 || max(d.LeasesLeft, d.ReplicasLeft) > len(d.Stuck)) {
		if line := drainLine(d); line != told && o.output != "json" {
			fmt.Fprintln(cmd.OutOrStdout(), line)
			told = line
		}
		select {
		case <-ctx.Done():
			return nil, &exitError{exitInterrupted, fmt.Errorf("stopped waiting; node %s stays draining: `vtopctl node drain %s` waits again, `--cancel` ends it", node, node)}
		case <-time.After(watchEvery):
		}
		now, err := ask(ctx, f, askTime, func(ctx context.Context, c *adminapi.Client) (*adminapi.DrainResult, error) {
			return c.DrainStatus(ctx, node)
		})
		switch {
		case err == nil:
			d, silent = now, time.Now()
		case ctx.Err() != nil:
		case !elsewhere(err):
			return nil, err
		case time.Since(silent) > patience:
			return nil, &exitError{exitUsage, fmt.Errorf("no node answered for %s; node %s stays draining: %w", patience, node, err)}
		}
	}
	return d, nil
}

func drainLine(d *adminapi.DrainResult) string {
	line := fmt.Sprintf("%s: %d leases and %d replicas left, %d repairs under way", d.Node, d.LeasesLeft, d.ReplicasLeft, len(d.Repairs))
	if len(d.Stuck) > 0 {
		line += fmt.Sprintf(", %d stuck (%s: %s)", len(d.Stuck), d.Stuck[0].Subject, d.Stuck[0].Message)
	}
	return line
}

func drawDrain(w io.Writer, d *adminapi.DrainResult) {
	if d.Done {
		fmt.Fprintf(w, "%s is %s and empty: it may be stopped, and then removed with vtopctl node remove %s\n", d.Node, d.State, d.Node)
		return
	}
	fmt.Fprintf(w, "%s is %s: %d leases and %d replicas left, %d repairs under way\n", d.Node, d.State, d.LeasesLeft, d.ReplicasLeft, len(d.Repairs))
	if d.State == "draining" {
		drawReasons(w, "nowhere to go:", d.Stuck)
	}
}

func nodeRemoveCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NODE",
		Short: "Take an empty node out of the cluster",
		Long: `Takes a node out of the metadata and out of Raft. It is refused while the node has a lease or a replica, each of which is
listed: drain it first, or, if it is dead, let healing or repair --replace move its replicas. So a removal never takes
the last copy of anything.

Exit code 0 removed, 2 wrong usage or no answer, 3 refused.`,
		Example: "  vtopctl node drain n2 && vtopctl node remove n2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			r, err := c.RemoveNode(cmd.Context(), args[0])
			if err != nil {
				return notStarted(err)
			}
			err = o.print(cmd, r, func(w io.Writer) {
				if r.Removed {
					fmt.Fprintf(w, "%s is removed; its data directory is yours to delete\n", r.Node)
					return
				}
				drawReasons(w, r.Node+" still has:", r.Left)
			})
			if !r.Removed {
				err = errors.Join(err, &exitError{exitRefused, fmt.Errorf("%s was not removed: it has %d leases and replicas; vtopctl node drain %s moves them", r.Node, len(r.Left), r.Node)})
			}
			return err
		},
	}
}

func nodeReplaceCommand(o *options) *cobra.Command {
	var dryRun, noWait bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "replace OLD NEW",
		Short: "Have a node take the place of another",
		Long: `Rebuilds every replica of OLD on NEW, and has those of OLD leave: a dead one's before, a living one's after the new one
votes. If a node is waiting for the name of OLD, with an empty or another disk, OLD and NEW are the same name: it is
admitted, what the old disk held counts as lost, and is rebuilt.

  vtopctl node replace n2 n4        n4 takes over what n2 has; then: vtopctl node remove n2
  vtopctl node replace n2 n2        the machine that now claims to be n2 is the new n2

Exit codes are those of repair.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := o.fleet()
			if err != nil {
				return err
			}
			r, err := ask(cmd.Context(), f, askLong, func(ctx context.Context, c *adminapi.Client) (*adminapi.ReplaceResult, error) {
				return c.ReplaceNode(ctx, args[0], adminapi.ReplaceRequest{With: args[1], DryRun: dryRun})
			})
			if err != nil {
				return notStarted(err)
			}
			verdict := repairVerdict(r.Repairs, true)
			if !dryRun && !noWait && len(r.Repairs) > 0 {
				f.learn(cmd.Context())
				w := watcher{fleet: f, patience: patience, show: o.progress(cmd)}
				if r.Repairs, err = w.wait(cmd.Context(), r.Repairs); err != nil {
					return err
				}
				verdict = repairVerdict(r.Repairs, false)
			}
			return errors.Join(o.print(cmd, r, func(w io.Writer) { drawReplaced(w, r, dryRun, noWait) }), verdict)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be rebuilt, and do nothing")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "print the numbers of the jobs and return")
	patienceFlag(cmd, &patience)
	return cmd
}

func drawReplaced(w io.Writer, r *adminapi.ReplaceResult, dryRun, noWait bool) {
	switch {
	case r.Admitted && dryRun:
		fmt.Fprintf(w, "the node that waits for the name %s would have it\n", r.With)
	case r.Admitted:
		fmt.Fprintf(w, "the node that waited for the name %s has it\n", r.With)
	}
	switch {
	case len(r.Repairs) == 0 && r.Admitted:
		fmt.Fprintf(w, "it has no replica with records to copy; leaders give it what is empty\n")
	case len(r.Repairs) == 0:
		fmt.Fprintf(w, "%s has no replica\n", r.Node)
	case dryRun || noWait:
		drawSubmitted(w, r.Repairs, adminapi.RepairRequest{Destination: r.With})
	default:
		drawEnded(w, r.Repairs)
	}
}

func nodeSafeToStopCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "safe-to-stop NODE",
		Short: "May this node be stopped now without a range or the metadata losing its majority?",
		Long: `Answers yes only if, without the node, every range would keep a majority of voters that live, are whole and have caught up,
and the metadata a majority of Raft voters. What could not be found out counts as no.

Exit code 0 safe, 1 not safe, with every reason; 2 wrong usage or no answer. For a rolling restart:

  until vtopctl node safe-to-stop n2; do sleep 1; done`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := o.fleet()
			if err != nil {
				return err
			}
			s, err := ask(cmd.Context(), f, askTime, func(ctx context.Context, c *adminapi.Client) (*adminapi.SafeToStop, error) {
				return c.SafeToStop(ctx, args[0])
			})
			if err != nil {
				return notStarted(err)
			}
			err = o.print(cmd, s, func(w io.Writer) {
				if s.Safe {
					fmt.Fprintf(w, "%s may be stopped: every range and the metadata keep their majority\n", s.Node)
				}
				drawReasons(w, s.Node+" must not be stopped now:", s.Reasons)
				drawReasons(w, "could not be found out:", s.Unknown)
			})
			if !s.Safe {
				err = errors.Join(err, &exitError{exitFailed, fmt.Errorf("not safe to stop %s: %d reasons, %d unknown", s.Node, len(s.Reasons), len(s.Unknown))})
			}
			return err
		},
	}
}
