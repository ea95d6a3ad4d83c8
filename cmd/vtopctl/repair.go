package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// repairFlags are those of `repair`.
type repairFlags struct {
	node, replace string
	all           bool
	sealTail      bool
	sources       []string
	maxRate       byteRate
	dryRun        bool
	noWait        bool
	patience      time.Duration
}

const repairHelp = `Brings the replica of a range on a node back, whatever happened to it: missing, wiped, damaged or far behind. The
sealed segments are copied from whole replicas, every chunk checked; what is above them comes from the leader's log;
then the replica becomes a voter. Nothing is stopped for it, no file has to be removed by hand, and what is still good
on the destination is not copied again.

  vtopctl repair orders/0 --node n2                      the replica on n2, where it is
  vtopctl repair orders/0 --node n4 --replace n2         a new one on n4; that of n2 leaves when it votes
  vtopctl repair orders/0 --node n4 --seal-tail          seal first, so that more is copied and less is followed
  vtopctl repair --node n2 --all                         every range of n2 that is not whole
  vtopctl repair orders/0 --node n4 --dry-run            what would be copied, and from where

The repair is a job of the cluster: it goes on when vtopctl, the destination, the source or the leader dies. vtopctl
waits for it and asks another node when the one it asks dies. Ctrl-C stops the waiting, never the job: see repair list,
status, watch, cancel. The same command again joins the job that is under way; on a whole replica it does nothing.

It ends with what was read back from the destination. Exit codes:
  0  at the floor and voting, or there was nothing to repair
  1  ended with a measured gap, or failed, or was cancelled; the cause is named
  2  wrong usage, or nobody could be asked
  3  refused: fenced, not allowed, never written, or nothing to repair from
  130  stopped waiting; the job goes on`

func repairCommand(o *options) *cobra.Command {
	var f repairFlags
	cmd := &cobra.Command{
		Use:   "repair TOPIC/N --node DEST | repair --node DEST --all",
		Short: "Bring a replica back among the voters, from any state",
		Long:  repairHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := f.request(args)
			if err != nil {
				return err
			}
			return o.repair(cmd, req, !f.noWait, f.patience)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.node, "node", "", "destination: the node whose replica is to be whole")
	flags.StringVar(&f.replace, "replace", "", "node whose replica leaves the range; if it is dead or lost before the new one votes, else after")
	flags.BoolVar(&f.all, "all", false, "every range of which the destination has a replica that is not whole")
	flags.BoolVar(&f.sealTail, "seal-tail", false, "have the leader seal its tail first")
	flags.StringSliceVar(&f.sources, "source", nil, "node to copy from; several with commas, or repeated (default: every whole replica)")
	flags.Var(&f.maxRate, "max-rate", "most bytes a second, as 50MB/s or 50MiB/s (default: a budget that yields to clients)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and do nothing")
	flags.BoolVar(&f.noWait, "no-wait", false, "print the number of the job and return")
	patienceFlag(cmd, &f.patience)
	cmd.AddCommand(repairListCommand(o), repairStatusCommand(o), repairCancelCommand(o), repairWatchCommand(o))
	return cmd
}

func patienceFlag(cmd *cobra.Command, d *time.Duration) {
	cmd.Flags().DurationVar(d, "patience", 2*time.Minute, "how long to go on asking when no node answers")
}

// request reads what the repair is of.
func (f *repairFlags) request(args []string) (req adminapi.RepairRequest, err error) {
	switch {
	case f.node == "":
		return req, usagef("say the destination: vtopctl repair TOPIC/N --node DEST")
	case f.all && len(args) > 0:
		return req, usagef("%s and --all: name one range, or say --all alone", args[0])
	case !f.all && len(args) == 0:
		return req, usagef("say which range: vtopctl repair TOPIC/N --node %s, or --all for every one that is not whole there", f.node)
	case f.replace == f.node:
		return req, usagef("--replace %s: a node cannot replace itself; leave --replace out to repair the replica where it is", f.replace)
	}
	req = adminapi.RepairRequest{
		All: f.all, Destination: f.node, Replaces: f.replace, SealTail: f.sealTail, Sources: f.sources, MaxRate: int64(f.maxRate), DryRun: f.dryRun,
	}
	if !f.all {
		req.Topic, req.Range, err = rangeArg(args[0])
	}
	return req, err
}

// repair submits, waits and tells. A job that is submitted twice is one job, so any node may be asked.
func (o *options) repair(cmd *cobra.Command, req adminapi.RepairRequest, wait bool, patience time.Duration) error {
	f, err := o.fleet()
	if err != nil {
		return err
	}
	jobs, err := ask(cmd.Context(), f, askLong, func(ctx context.Context, c *adminapi.Client) ([]adminapi.Repair, error) {
		return c.SubmitRepairs(ctx, req)
	})
	if err != nil {
		return notStarted(err)
	}
	if req.DryRun || !wait {
		return o.tell(cmd, jobs, req.All, func(w io.Writer) { drawSubmitted(w, jobs, req) }, repairVerdict(jobs, true))
	}
	if len(jobs) == 0 {
		return o.tell(cmd, jobs, req.All, func(w io.Writer) {
			fmt.Fprintf(w, "nothing to repair: every replica of %s is whole\n", req.Destination)
		}, nil)
	}
	return o.follow(cmd, f, jobs, req.All, patience)
}

// follow waits for jobs and tells how they ended.
func (o *options) follow(cmd *cobra.Command, f *fleet, jobs []adminapi.Repair, many bool, patience time.Duration) error {
	f.learn(cmd.Context())
	w := watcher{fleet: f, patience: patience, show: o.progress(cmd)}
	jobs, err := w.wait(cmd.Context(), jobs)
	if err != nil {
		return err
	}
	return o.tell(cmd, jobs, many, func(w io.Writer) { drawEnded(w, jobs) }, repairVerdict(jobs, false))
}

// tell prints jobs, one as an object and many as a list, and gives verdict unless printing failed.
func (o *options) tell(cmd *cobra.Command, jobs []adminapi.Repair, many bool, draw func(io.Writer), verdict error) error {
	var v any = jobs
	if jobs == nil {
		v = []adminapi.Repair{}
	}
	if !many && len(jobs) == 1 {
		v = jobs[0]
	}
	return errors.Join(o.print(cmd, v, draw), verdict)
}

// notStarted gives the exit code of a submission that came back with an error: 1 is kept for repairs that ended.
func notStarted(err error) error {
	if hasCode(err, adminapi.CodeNotFound, adminapi.CodeNotReady, adminapi.CodeUnavailable, adminapi.CodeTimeout) {
		return &exitError{exitUsage, err}
	}
	return err
}

// repairVerdict turns outcomes into the exit code: that of the worst. started says that jobs which have not ended
// are as they should be.
func repairVerdict(jobs []adminapi.Repair, started bool) error {
	var worst *exitError
	for i := range jobs {
		if e := verdictOfJob(&jobs[i], started); e != nil && (worst == nil || e.code > worst.code) {
			worst = e
		}
	}
	if worst == nil {
		return nil
	}
	return worst
}

// verdictOfJob believes the word "whole" only with the position that was read back (I12).
func verdictOfJob(j *adminapi.Repair, started bool) *exitError {
	fail := func(code int, format string, args ...any) *exitError {
		text := fmt.Sprintf("repair of %s on %s ", j.Range, j.Destination) + fmt.Sprintf(format, args...)
		if cause := firstOf(j.Cause, j.LastError); cause != "" {
			text += ": " + cause
		}
		return &exitError{code, errors.New(text)}
	}
	switch j.Outcome {
	case adminapi.OutcomePlanned:
		return nil
	case adminapi.OutcomeNothingToRepair:
		if j.Gap > 0 {
			return fail(exitFailed, "found nothing to repair, but it is %s behind the floor", number(j.Gap))
		}
		return nil
	case adminapi.OutcomeWhole:
		if j.Voter && j.Gap == 0 && j.Floor != adminapi.Unknown && j.LogEnd >= j.Floor {
			return nil
		}
		return fail(exitFailed, "ended, but what was read back is not whole (log end %s, floor %s, gap %s, votes: %t)", number(j.LogEnd), number(j.Floor), number(j.Gap), j.Voter)
	case adminapi.OutcomeGap:
		return fail(exitFailed, "ended with a gap of %s offsets", number(j.Gap))
	case adminapi.OutcomeRefused:
		return fail(exitRefused, "was refused")
	case adminapi.OutcomeCancelled:
		return fail(exitFailed, "was cancelled")
	}
	if started && !j.Ended() {
		return nil
	}
	return fail(exitFailed, "failed")
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// drawSubmitted shows a plan, or the numbers of the jobs.
func drawSubmitted(w io.Writer, jobs []adminapi.Repair, req adminapi.RepairRequest) {
	if len(jobs) == 0 {
		fmt.Fprintf(w, "nothing to repair: every replica of %s is whole\n", req.Destination)
	}
	for i := range jobs {
		j := &jobs[i]
		switch {
		case j.Outcome == adminapi.OutcomeNothingToRepair:
			fmt.Fprintf(w, "%s on %s: nothing to repair: %s\n", j.Range, j.Destination, firstOf(j.Cause, "the replica is whole"))
		case j.Outcome == adminapi.OutcomeRefused:
			fmt.Fprintf(w, "%s on %s: would be refused: %s\n", j.Range, j.Destination, j.Cause)
		case j.Outcome == adminapi.OutcomePlanned:
			drawPlan(w, j)
		default:
			fmt.Fprintf(w, "repair %d: %s on %s is %s\n", j.ID, j.Range, j.Destination, j.Step)
		}
	}
}

func drawPlan(w io.Writer, j *adminapi.Repair) {
	fmt.Fprintf(w, "%s on %s: would copy %d segments, %s, from %s, at %s\n", j.Range, j.Destination, j.Segments, size(j.BytesTotal), orDash(strings.Join(j.Sources, ",")), rateText(j.MaxRate))
	if j.SealTail {
		fmt.Fprintln(w, "  the leader would seal its tail first")
	}
	fmt.Fprintf(w, "  sealed end %s now; what is above it comes from the leader's log\n", number(j.SealedEnd))
	if j.Replaces != "" {
		fmt.Fprintf(w, "  the replica of %s would leave\n", j.Replaces)
	}
	if j.Reason != "" {
		fmt.Fprintf(w, "  %s\n", j.Reason)
	}
}

// drawEnded shows what was read back.
func drawEnded(w io.Writer, jobs []adminapi.Repair) {
	if len(jobs) == 1 {
		drawOutcome(w, &jobs[0])
		return
	}
	var rows [][]string
	for i := range jobs {
		j := &jobs[i]
		rows = append(rows, []string{
			j.Range, j.Destination, firstOf(j.Outcome, j.Step), number(j.SealedEnd), number(j.LogEnd), number(j.Floor), number(j.Gap),
			strconv.FormatBool(j.Voter), size(j.Bytes), orDash(j.Cause),
		})
	}
	table(w, "RANGE DESTINATION OUTCOME SEALED-END LOG-END FLOOR GAP VOTER BYTES CAUSE", rows)
}

func drawOutcome(w io.Writer, j *adminapi.Repair) {
	fmt.Fprintf(w, "%s on %s: %s\n", j.Range, j.Destination, firstOf(j.Outcome, j.Step))
	votes := "does not vote"
	if j.Voter {
		votes = "votes"
	}
	fmt.Fprintf(w, "  read back: sealed end %s, log end %s, floor %s, gap %s, %s\n", number(j.SealedEnd), number(j.LogEnd), number(j.Floor), number(j.Gap), votes)
	if j.Bytes > 0 || j.RecordsSealed > 0 {
		fmt.Fprintf(w, "  copied %d segments, %s, from %s; %d records sealed for it\n", j.Segments, size(j.Bytes), orDash(strings.Join(j.Sources, ",")), j.RecordsSealed)
	}
	for _, d := range j.DroppedSources {
		fmt.Fprintf(w, "  source %s was dropped: %s\n", d.Node, d.Reason)
	}
	if j.Cause != "" {
		fmt.Fprintf(w, "  cause: %s\n", j.Cause)
	}
}
