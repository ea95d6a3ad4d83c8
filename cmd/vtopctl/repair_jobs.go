package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func repairListCommand(o *options) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the repairs under way, or all that are remembered",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := o.fleet()
			if err != nil {
				return err
			}
			jobs, err := ask(cmd.Context(), f, askTime, func(ctx context.Context, c *adminapi.Client) ([]adminapi.Repair, error) { return c.Repairs(ctx, all) })
			if err != nil {
				return err
			}
			return o.tell(cmd, jobs, true, func(w io.Writer) { drawJobs(w, jobs) }, nil)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "those that have ended, too")
	return cmd
}

func drawJobs(w io.Writer, jobs []adminapi.Repair) {
	var rows [][]string
	for i := range jobs {
		j := &jobs[i]
		done := "-"
		if j.BytesTotal > 0 {
			done = fmt.Sprintf("%d%%", 100*j.BytesDone/j.BytesTotal)
		}
		rows = append(rows, []string{
			strconv.FormatUint(j.ID, 10), j.Range, j.Destination, firstOf(j.Outcome, j.Step), done, orDash(strings.Join(j.Sources, ",")),
			j.Origin, moment(j.CreatedAt), orDash(firstOf(j.Waiting, j.Cause, j.LastError)),
		})
	}
	table(w, "ID RANGE DESTINATION STATE DONE SOURCES ORIGIN CREATED WHY", rows)
}

func repairStatusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status ID|TOPIC/N",
		Short: "Show one repair: how far it is, from where, and why if it does not move",
		Long: `Shows one repair, by its number or as the newest of a range. Every node answers the same.
Exit code 0 if there is such a repair, whatever became of it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := o.fleet()
			if err != nil {
				return err
			}
			j, err := findRepair(cmd.Context(), f, args[0])
			if err != nil {
				return err
			}
			return o.print(cmd, j, func(w io.Writer) { drawJob(w, j) })
		},
	}
}

// findRepair finds a job by its number, or the newest of a range.
func findRepair(ctx context.Context, f *fleet, arg string) (*adminapi.Repair, error) {
	if id, err := strconv.ParseUint(arg, 10, 64); err == nil {
		return ask(ctx, f, askTime, func(ctx context.Context, c *adminapi.Client) (*adminapi.Repair, error) { return c.Repair(ctx, id) })
	}
	topic, n, err := rangeArg(arg)
	if err != nil {
		return nil, usagef("%q is no repair: want its number, or TOPIC/N", arg)
	}
	jobs, err := ask(ctx, f, askTime, func(ctx context.Context, c *adminapi.Client) ([]adminapi.Repair, error) { return c.Repairs(ctx, true) })
	if err != nil {
		return nil, err
	}
	name := topic + "/" + strconv.Itoa(int(n))
	var newest *adminapi.Repair
	for i := range jobs {
		if j := &jobs[i]; j.Range == name && (newest == nil || j.ID > newest.ID) {
			newest = j
		}
	}
	if newest == nil {
		return nil, adminapi.Errorf(adminapi.CodeNotFound, "no repair of %s is remembered", name).WithHint("vtopctl repair list --all shows them")
	}
	return newest, nil
}

func drawJob(w io.Writer, j *adminapi.Repair) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("repair", "%d of %s (topic id %s)", j.ID, j.Range, j.TopicID)
	line("destination", "%s", j.Destination)
	if j.Replaces != "" {
		line("replaces", "%s", j.Replaces)
	}
	line("asked by", "%s", strings.TrimSuffix(j.Origin+": "+j.Reason, ": "))
	line("step", "%s", j.Step)
	if j.Waiting != "" {
		line("waiting", "%s", j.Waiting)
	}
	if j.LastError != "" {
		line("last error", "%s", j.LastError)
	}
	line("sources", "%s", orDash(strings.Join(j.Sources, ", ")))
	for _, d := range j.DroppedSources {
		line("dropped", "%s: %s", d.Node, d.Reason)
	}
	line("sealed", "end %s; %d records sealed for it", number(j.SealedEnd), j.RecordsSealed)
	line("bytes", "%s of %s in %d segments, at %s", size(j.BytesDone), size(j.BytesTotal), j.Segments, rateText(j.MaxRate))
	if !j.Ended() {
		line("speed", "%s/s %s", size(j.BytesPerSecond), left(j.ETAMS))
	}
	if j.Outcome != "" {
		line("outcome", "%s", j.Outcome)
		line("read back", "log end %s, floor %s, gap %s, votes: %t", number(j.LogEnd), number(j.Floor), number(j.Gap), j.Voter)
	}
	if j.Cause != "" {
		line("cause", "%s", j.Cause)
	}
	line("since", "%s, last news %s", moment(j.CreatedAt), moment(j.UpdatedAt))
}

func repairCancelCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID|TOPIC/N...",
		Short: "End repairs; what the range had before stays as it is",
		Long: `Ends repairs. The voters that the range has stay as they are, and what was copied may serve the next repair.
Exit code 0 if they are cancelled, 1 if one had ended before.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := o.fleet()
			if err != nil {
				return err
			}
			var jobs []adminapi.Repair
			var late error
			for _, arg := range args {
				j, err := findRepair(cmd.Context(), f, arg)
				if err != nil {
					return err
				}
				j, err = ask(cmd.Context(), f, askLong, func(ctx context.Context, c *adminapi.Client) (*adminapi.Repair, error) {
					return c.CancelRepair(ctx, j.ID)
				})
				if err != nil {
					return err
				}
				if jobs = append(jobs, *j); j.Step != adminapi.StepCancelled {
					late = &exitError{exitFailed, fmt.Errorf("repair %d had ended: %s", j.ID, firstOf(j.Outcome, j.Step))}
				}
			}
			return o.tell(cmd, jobs, len(args) > 1, func(w io.Writer) {
				for i := range jobs {
					fmt.Fprintf(w, "repair %d of %s on %s: %s\n", jobs[i].ID, jobs[i].Range, jobs[i].Destination, firstOf(jobs[i].Outcome, jobs[i].Step))
				}
			}, late)
		},
	}
}

func repairWatchCommand(o *options) *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "watch [ID|TOPIC/N...]",
		Short: "Wait for repairs, as repair itself does",
		Long: `Waits for repairs, by default for all that are under way, and ends as repair does: with what was read back, and
with its exit codes. Ctrl-C stops the waiting, not the repairs.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := o.fleet()
			if err != nil {
				return err
			}
			var jobs []adminapi.Repair
			if len(args) == 0 {
				jobs, err = ask(cmd.Context(), f, askTime, func(ctx context.Context, c *adminapi.Client) ([]adminapi.Repair, error) { return c.Repairs(ctx, false) })
				if err != nil {
					return err
				}
			}
			for _, arg := range args {
				j, err := findRepair(cmd.Context(), f, arg)
				if err != nil {
					return err
				}
				jobs = append(jobs, *j)
			}
			if len(jobs) == 0 {
				return o.tell(cmd, jobs, true, func(w io.Writer) { fmt.Fprintln(w, "no repair is under way") }, nil)
			}
			return o.follow(cmd, f, jobs, len(args) != 1, patience)
		},
	}
	patienceFlag(cmd, &patience)
	return cmd
}
