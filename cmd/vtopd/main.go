// Command vtopd runs one node of a vtop cluster, or with dev a whole cluster on loopback.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// errUsage marks errors that a restart with the same settings would only repeat.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := rootCommand().ExecuteContext(ctx)
	stop()
	switch {
	case err == nil:
		os.Exit(exitOK)
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "vtopd:", err)
		os.Exit(exitUsage)
	default:
		fmt.Fprintln(os.Stderr, "vtopd:", err)
		os.Exit(exitFailed)
	}
}

// noArgs refuses words that are no flags, as wrong settings.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return nil
}

func rootCommand() *cobra.Command {
	c := defaults()
	cmd := &cobra.Command{
		Use:   "vtopd",
		Short: "Run one node of a vtop cluster",
		Long: `Runs one node of a vtop cluster: a replicated commit log for any Kafka client.

Give every machine the same command but for its name and addresses:
  vtopd --node-id n1 --peer-addr 10.0.0.1:9640 ... --join 10.0.0.1:9640,10.0.0.2:9640,10.0.0.3:9640 --bootstrap-expect 3
Settings come from flags, then the environment (VTOP_NODE_ID ...), then the file given by --config.
SIGTERM hands the leases over and ends the process within ten seconds; nothing is lost.

Exit codes: 0 stopped as asked, 1 failed, 2 wrong settings, 5 the disk hung past --disk-stall-limit.`,
		Args:          noArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := load(cmd.Flags(), &c, environment); err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			return run(cmd.Context(), c)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	bindFlags(cmd.Flags(), &c)
	cmd.AddCommand(devCommand(), helperCommand())
	return cmd
}
