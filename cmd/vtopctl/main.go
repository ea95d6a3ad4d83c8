// Command vtopctl inspects a vtop cluster and drives it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
	"github.com/vtop-log/vtop/transport/tlsid"
)

// Exit codes of vtopctl, documented in docs/operations.md.
const (
	exitOK          = 0
	exitFailed      = 1 // the cluster did not do it, or what was asked is not so
	exitUsage       = 2 // wrong usage, or no node could be reached
	exitRefused     = 3 // refused, or a segment is damaged
	exitInterrupted = 130
	envEndpoint     = "VTOP_ENDPOINT"
	defaultPort     = "9642"
	defaultEndpoint = "127.0.0.1:" + defaultPort
)

// exitError carries an exit code beside its text.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := rootCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vtopctl:", err)
		var refusal *adminapi.Error
		if errors.As(err, &refusal) && refusal.Hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", refusal.Hint)
		}
	}
	os.Exit(exitCode(err))
}

// exitCode: what a node answered decides between failed and refused; all else that is not marked is usage or an
// endpoint that could not be reached.
func exitCode(err error) int {
	var marked *exitError
	var refusal *adminapi.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &marked):
		return marked.code
	case errors.As(err, &refusal):
		switch refusal.Code {
		case adminapi.CodeInvalid, adminapi.CodeUnreachable:
			return exitUsage
		case adminapi.CodeNotAllowed, adminapi.CodeCertificate, adminapi.CodeConflict, adminapi.CodeFenced, adminapi.CodeNeverWritten, adminapi.CodeNoSource:
			return exitRefused
		}
		return exitFailed
	}
	return exitUsage
}

// options are the flags that every command has.
type options struct {
	endpoint string
	output   string
	tls      tlsid.Files
}

func rootCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "vtopctl",
		Short: "Inspect a vtop cluster and drive it",
		Long: `Inspects a vtop cluster and drives it, through the admin port of any node.

  vtopctl status                       what is well and what is not
  vtopctl lease list                   who leads which range, under which epoch, up to where it is safe
  vtopctl lease show orders/0          the whole story of one range
  vtopctl lease transfer orders/0 --to n2

  vtopctl node safe-to-stop n2         may it be restarted now
  vtopctl repair orders/0 --node n4    bring a missing, wiped, damaged or late replica back among the voters
  vtopctl node drain n2                empty a node, before it is removed
  vtopctl scrub                        read every sealed segment, and compare
  vtopctl drill leader-kill            break it under load, and see whether its promises hold

The endpoint is --endpoint, or VTOP_ENDPOINT, or 127.0.0.1:9642; give several with commas, and the first that answers
is asked. Listings take -o json.
Exit codes: 0 done, 1 failed, 2 wrong usage or no answer, 3 refused or damaged.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := cmd.PersistentFlags()
	f.StringVar(&o.endpoint, "endpoint", envOr(envEndpoint, defaultEndpoint), "admin address of any node, its port if it is not 9642; several with commas")
	f.StringVarP(&o.output, "output", "o", "table", "table or json")
	f.StringVar(&o.tls.Cert, "tls-cert", os.Getenv("VTOP_TLS_CERT"), "certificate of the operator (vtopctl cert issue --operator)")
	f.StringVar(&o.tls.Key, "tls-key", os.Getenv("VTOP_TLS_KEY"), "key of --tls-cert")
	f.StringVar(&o.tls.CA, "tls-ca", os.Getenv("VTOP_TLS_CA"), "certificate of the cluster's CA")
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		if o.output != "table" && o.output != "json" {
			return usagef("-o %s: want table or json", o.output)
		}
		return nil
	}
	cmd.AddCommand(statusCommand(o), nodeCommand(o), topicCommand(o), groupCommand(o), leaseCommand(o), segmentCommand(o), certCommand(),
		sealCommand(o), repairCommand(o), healCommand(o), scrubCommand(o), rangeCommand(o), drillCommand(o))
	refuseStrays(cmd)
	return cmd
}

// refuseStrays has every command that only groups others refuse a word that is none of them: printing help and ending
// with 0 would look like success to a script.
func refuseStrays(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		refuseStrays(sub)
		nameWanted(sub)
		if sub.Runnable() || !sub.HasSubCommands() {
			continue
		}
		sub.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				text += "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return usagef("%s", text)
		}
	}
}

// nameWanted has a command that is given too few or too many words say what it wants, by its own usage line and example.
func nameWanted(cmd *cobra.Command) {
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(c *cobra.Command, args []string) error {
		err := check(c, args)
		if err == nil {
			return nil
		}
		example, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n")
		if example == "" {
			example = c.CommandPath() + " --help"
		}
		return usagef("%w: want %s; try: %s", err, c.UseLine(), example)
	}
}

func envOr(name, other string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return other
}
