package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func nodeHashCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "hash",
		Aliases: []string{"hashkv"},
		Short:   "Compare the metadata that the nodes have applied",
		Long: `Has every node hash its copy of the metadata at one index of the Raft log, and compares the hashes. Nothing is changed, and
writes go on meanwhile. A node that does not answer, or is so far behind that it can't be brought to that index, is
unknown: never the same. Hashes of different versions of vtopd are only compared if they are equal.
For the bytes of records see vtopctl scrub.

Exit code 0 all are the same, 1 some are unknown and none differs, 2 wrong usage or no answer, 3 some differ.`,
		Example: "  vtopctl node hash\n  vtopctl node hash -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := o.fleet()
			if err != nil {
				return err
			}
			h, err := ask(cmd.Context(), f, askLong, func(ctx context.Context, c *adminapi.Client) (*adminapi.StateHashes, error) {
				return c.StateHashes(ctx)
			})
			if err != nil {
				return err
			}
			if err := o.print(cmd, h, func(w io.Writer) { drawHashes(w, h) }); err != nil {
				return err
			}
			switch h.Verdict {
			case adminapi.StateSame:
				return nil
			case adminapi.StateDiffers:
				return &exitError{exitRefused, fmt.Errorf("the metadata of the nodes differs at index %d: keep the raft directories of all of them, and report it", h.Index)}
			}
			return &exitError{exitFailed, fmt.Errorf("not all nodes could be compared")}
		},
	}
}

func drawHashes(w io.Writer, h *adminapi.StateHashes) {
	var rows [][]string
	for _, n := range h.Nodes {
		rows = append(rows, []string{n.Node, n.Verdict, number(n.Index), orDash(n.Hash), orDash(n.Version), orDash(n.Reason)})
	}
	table(w, "NODE VERDICT INDEX HASH VERSION REASON", rows)
}
