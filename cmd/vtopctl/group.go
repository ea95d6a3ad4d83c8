package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func groupCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "group", Short: "List, describe and delete consumer groups, and set their offsets"}
	cmd.AddCommand(groupListCommand(o), groupDescribeCommand(o), groupDeleteCommand(o), groupOffsetsCommand(o))
	return cmd
}

func groupListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the consumer groups",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			groups, err := c.Groups(cmd.Context())
			if err != nil {
				return err
			}
			return o.print(cmd, groups, func(w io.Writer) {
				var rows [][]string
				for _, g := range groups {
					rows = append(rows, []string{visible(g.Group), g.Kind, g.State, strconv.Itoa(int(g.Epoch)), strconv.Itoa(g.Members), strconv.Itoa(g.Offsets), orDash(g.Coordinator)})
				}
				table(w, "GROUP KIND STATE EPOCH MEMBERS OFFSETS COORDINATOR", rows)
			})
		},
	}
}

func groupDescribeCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "describe GROUP",
		Short: "Show a group with its members, what they read, and how far it is behind",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			g, err := c.Group(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return o.print(cmd, g, func(w io.Writer) { drawGroup(w, g) })
		},
	}
}

func drawGroup(w io.Writer, g *adminapi.GroupDetail) {
	fmt.Fprintf(w, "group %s (%s), %s, epoch %d, assignor %s\n", visible(g.Group.Group), g.Kind, g.State, g.Epoch, orDash(g.Protocol))
	fmt.Fprintf(w, "coordinator %s, slot %d, epoch %d\n", orDash(g.Coordinator), g.Slot, g.CoordinatorEpoch)
	if g.Members == 0 {
		fmt.Fprintf(w, "empty since %s\n", moment(g.EmptySince))
	}
	if len(g.MembersDetail) > 0 {
		fmt.Fprintln(w)
		var rows [][]string
		for _, m := range g.MembersDetail {
			rows = append(rows, []string{visible(m.ID), orDash(visible(m.InstanceID)), orDash(visible(m.ClientID)), orDash(visible(m.ClientHost)), strconv.Itoa(int(m.Epoch)),
				orDash(strings.Join(m.Assigned, ",")), orDash(strings.Join(m.Revoking, ","))})
		}
		table(w, "MEMBER INSTANCE CLIENT HOST EPOCH ASSIGNED REVOKING", rows)
	}
	if len(g.CommittedDetail) > 0 {
		fmt.Fprintln(w)
		var rows [][]string
		for _, p := range g.CommittedDetail {
			rows = append(rows, []string{fmt.Sprintf("%s/%d", p.Topic, p.Range), number(p.Offset), number(p.HighWatermark), number(p.Lag), orDash(visible(p.Member)), moment(p.CommittedAt)})
		}
		table(w, "RANGE OFFSET END LAG MEMBER COMMITTED", rows)
	}
}

// visible shows what clients chose without control characters: a terminal takes orders from those.
func visible(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

func groupDeleteCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "delete GROUP",
		Short: "Delete a group that has no members, and its offsets",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			if err := c.DeleteGroup(cmd.Context(), args[0], ""); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "group %s deleted\n", visible(args[0]))
			return nil
		},
	}
}

func groupOffsetsCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "offsets", Short: "Set the committed offsets of a group"}
	cmd.AddCommand(groupOffsetsResetCommand(o))
	return cmd
}

func groupOffsetsResetCommand(o *options) *cobra.Command {
	var to string
	var req adminapi.ResetOffsets
	cmd := &cobra.Command{
		Use:   "reset GROUP TOPIC[/N]",
		Short: "Set where a group without members will go on reading",
		Long: `Set where a group without members will go on reading, in all ranges of a topic or in one.

A time means the first record whose timestamp is that time or later, and the end of the range where there is none. It is
written with its zone (RFC 3339), or as how long ago by this machine's clock: -90s, -15m, -1h30m, -7d. The timestamps are
the producers', or with message.timestamp.type=LogAppendTime the leaders'.`,
		Example: `  vtopctl group offsets reset billing orders --to earliest --dry-run
  vtopctl group offsets reset billing orders/3 --to 1200
  vtopctl group offsets reset billing orders --to 2026-02-14T08:00:00Z
  vtopctl group offsets reset billing orders --to -1h`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Group, req.Topic, req.Range = args[0], args[1], adminapi.AllRanges
			if strings.Contains(args[1], "/") { // no topic name has one
				var err error
				if req.Topic, req.Range, err = rangeArg(args[1]); err != nil {
					return err
				}
			}
			if err := resetTo(&req, to, time.Now()); err != nil {
				return err
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			resets, err := c.ResetOffsets(cmd.Context(), req, "")
			if err != nil {
				return err
			}
			return o.print(cmd, resets, func(w io.Writer) {
				var rows [][]string
				for _, r := range resets {
					rows = append(rows, []string{fmt.Sprintf("%s/%d", r.Topic, r.Range), number(r.Before), number(r.After)})
				}
				table(w, "RANGE BEFORE AFTER", rows)
				if req.DryRun {
					fmt.Fprintln(w, "nothing was changed (--dry-run)")
				}
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "earliest, latest, an offset (as far as it is in the log), a time such as 2026-02-14T08:00:00Z, or how long ago: -1h")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "show what it comes to, and change nothing")
	return cmd
}

// resetTo reads the value of --to; now is what a duration counts from.
func resetTo(req *adminapi.ResetOffsets, to string, now time.Time) error {
	switch to {
	case adminapi.ToEarliest, adminapi.ToLatest:
		req.To = to
		return nil
	}
	if offset, err := strconv.ParseInt(to, 10, 64); err == nil && offset >= 0 {
		req.To, req.Offset = adminapi.ToOffset, offset
		return nil
	}
	at, err := time.Parse(time.RFC3339, to)
	if err != nil {
		ago, ok := howLongAgo(to)
		if !ok {
			return usagef("--to %q: want earliest, latest, an offset from 0, a time with its zone such as 2026-02-14T08:00:00Z, or how long ago, such as -1h or -7d", to)
		}
		at = now.Add(-ago)
	}
	if at.UnixMilli() < 0 {
		return usagef("--to %q: it is before 1970", to)
	}
	req.To, req.Time = adminapi.ToTime, at.UTC()
	return nil
}

// howLongAgo reads -1h, -1h30m and, since Go has no days, -7d.
func howLongAgo(text string) (time.Duration, bool) {
	text, ok := strings.CutPrefix(text, "-")
	if !ok || text == "" || text[0] < '0' || text[0] > '9' {
		return 0, false
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err == nil
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}
