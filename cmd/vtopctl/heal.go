package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func healCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "heal",
		Short: "What the cluster repairs by itself",
		Long: `A node that has been gone for --heal-after has its replicas rebuilt on other nodes, in other racks if there are, a few at a
time; a lost replica and a damaged segment are rebuilt where they are. Pause it while you move machines; the pause is
kept by the cluster until it is resumed, and vtopctl status shows it. Repairs that people asked for go on meanwhile.`,
	}
	var why string
	pause := healVerb(o, "pause", "Start no repairs any more; those under way go on", func(ctx context.Context, c *adminapi.Client) (*adminapi.HealStatus, error) {
		return c.PauseHeal(ctx, why)
	})
	pause.Flags().StringVar(&why, "why", "", "reason, shown to whoever asks")
	cmd.AddCommand(pause,
		healVerb(o, "resume", "Heal again", func(ctx context.Context, c *adminapi.Client) (*adminapi.HealStatus, error) { return c.ResumeHeal(ctx) }),
		healVerb(o, "status", "Show who is missed, what is rebuilt, and what can't be", func(ctx context.Context, c *adminapi.Client) (*adminapi.HealStatus, error) {
			return c.HealStatus(ctx)
		}))
	return cmd
}

// healVerb makes a command: each of them ends with the state as it is then.
func healVerb(o *options, name, short string, call func(context.Context, *adminapi.Client) (*adminapi.HealStatus, error)) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := o.fleet()
			if err != nil {
				return err
			}
			s, err := ask(cmd.Context(), f, askLong, call)
			if err != nil {
				return err
			}
			return o.print(cmd, s, func(w io.Writer) { drawHeal(w, s) })
		},
	}
}

func drawHeal(w io.Writer, s *adminapi.HealStatus) {
	if s.Paused {
		fmt.Fprintf(w, "healing is paused since %s: %s\n", moment(s.Since), firstOf(s.Why, "no reason was given"))
	} else {
		most := ""
		if s.Limit > 0 {
			most = fmt.Sprintf(" of at most %d", s.Limit)
		}
		fmt.Fprintf(w, "healing: a node gone for %s is replaced; %d%s repairs under way\n", milliseconds(s.AfterMS), s.Running, most)
		if s.Limit < 0 {
			fmt.Fprintln(w, "the Raft leader did not answer: what holds healing up, and its limit, are not known")
		}
	}
	for _, g := range s.Gone {
		due := "due now"
		if g.LeftMS > 0 {
			due = "replaced in " + milliseconds(g.LeftMS)
		}
		if s.Paused {
			due = "paused"
		}
		fmt.Fprintf(w, "  %s is gone for %s with %d replicas: %s\n", g.Node, milliseconds(g.GoneMS), g.Replicas, due)
	}
	drawReasons(w, "can't be healed:", s.Stuck)
	if len(s.Repairs) > 0 {
		drawJobs(w, s.Repairs)
	}
}
