package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func rangeCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "range", Short: "The way out for a range that lost its majority"}
	cmd.AddCommand(rangeRecoverCommand(o))
	return cmd
}

func rangeRecoverCommand(o *options) *cobra.Command {
	var req adminapi.RecoverRequest
	var confirm string
	cmd := &cobra.Command{
		Use:   "recover TOPIC/N --from NODE --accept-data-loss",
		Short: "Go on from one replica, when a majority of the voters is gone for good",
		Long: `Makes one replica the only voter of a range whose majority will never come back. Records that it does not have are lost
for ever, acknowledged or not; which offsets those are is listed first and recorded in the range's history.

While there is hope for the others, bring them back instead: a range that waits has lost nothing.

  vtopctl range recover orders/0 --from n3 --dry-run             what would be lost; changes nothing
  vtopctl range recover orders/0 --from n3 --accept-data-loss    do it

The name of the range has to be typed again, after the plan is shown; --confirm TOPIC/N answers in advance, and is
needed where there is no terminal. What is carried out is the plan that was shown: if the range has changed since, it is refused.

Exit code 0 done (or, with --dry-run, the plan could be made), 2 wrong usage, not confirmed, or no answer, 3 refused.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, n, err := rangeArg(args[0])
			if err != nil {
				return err
			}
			if !req.DryRun && !req.AcceptDataLoss {
				return usagef("records would be lost for ever: look at it with --dry-run first, then say --accept-data-loss")
			}
			if confirm != "" && confirm != args[0] {
				return usagef("--confirm %s is not %s: nothing was changed", confirm, args[0])
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			plan, err := c.RecoverRange(cmd.Context(), topic, n, adminapi.RecoverRequest{From: req.From, DryRun: true})
			if err != nil {
				return notStarted(err)
			}
			if req.DryRun {
				return o.print(cmd, plan, func(w io.Writer) { drawRecover(w, plan) })
			}
			if confirm == "" {
				drawRecover(cmd.ErrOrStderr(), plan)
				if err := typed(cmd, args[0]); err != nil {
					return err
				}
			}
			req.ConfigVersion = plan.ConfigVersion
			done, err := c.RecoverRange(cmd.Context(), topic, n, req)
			if err != nil {
				return notStarted(err)
			}
			return o.print(cmd, done, func(w io.Writer) { drawRecover(w, done) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.From, "from", "", "node whose replica is to be the only one: the one that has most")
	f.BoolVar(&req.AcceptDataLoss, "accept-data-loss", false, "records that this replica does not have are lost for ever")
	f.BoolVar(&req.DryRun, "dry-run", false, "list what would be lost, and change nothing")
	f.StringVar(&confirm, "confirm", "", "the name of the range, in place of typing it")
	if err := cmd.MarkFlagRequired("from"); err != nil {
		panic(err)
	}
	return cmd
}

// typed has the name of the range typed again.
func typed(cmd *cobra.Command, name string) error {
	if !terminal(cmd.InOrStdin()) {
		return usagef("not confirmed, and there is no terminal to ask at: nothing was changed; say --confirm %s", name)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Type %s to go on: ", name)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if got := strings.TrimSpace(line); got != name {
		return usagef("%q is not %s: nothing was changed (%v)", got, name, err)
	}
	return nil
}

func drawRecover(w io.Writer, p *adminapi.RecoverPlan) {
	if p.Applied {
		fmt.Fprintf(w, "%s goes on from the replica of %s alone, from epoch %d on\n", p.Range, p.From, p.Epoch)
	} else {
		fmt.Fprintf(w, "%s would go on from the replica of %s alone\n", p.Range, p.From)
	}
	fmt.Fprintf(w, "  it has [%s, %s); everything below %s was promised\n", number(p.LogStart), number(p.KeepEnd), number(p.Floor))
	for _, l := range p.Lost {
		what := "may have been acknowledged; nobody is left who knows"
		if l.Promised {
			what = "acknowledged, and promised for ever"
		}
		fmt.Fprintf(w, "  lost: [%s, %s), %s\n", number(l.From), number(l.To), what)
	}
	if len(p.Lost) == 0 {
		fmt.Fprintln(w, "  lost: nothing that is known of")
	}
	var rows [][]string
	for _, v := range p.Voters {
		rows = append(rows, []string{v.Node, fmt.Sprint(v.ReplicaID), fmt.Sprint(v.Alive), v.State, number(v.LogEnd), orDash(v.Reason)})
	}
	table(w, "VOTER REPLICA ALIVE STATE LOG-END REASON", rows)
	drawReasons(w, "beware:", p.Warnings)
	if p.Applied {
		fmt.Fprintf(w, "give it its copies back: vtopctl repair %s --node NODE\n", p.Range)
	}
}
