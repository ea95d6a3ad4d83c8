package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// verified is one segment's verdict as printed.
type verified struct {
	Path     string   `json:"path"`
	Status   string   `json:"status"`
	Base     int64    `json:"base"`
	End      int64    `json:"end"`
	Batches  int64    `json:"batches"`
	Bytes    int64    `json:"bytes"`
	Root     string   `json:"root,omitempty"`
	Problems []string `json:"problems"`
}

func segmentVerifyCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "verify PATH...",
		Short: "Verify segment files of a node that does not run",
		Long: `Verifies segment files, or all below a directory, without a cluster: every byte of a sealed segment against its
manifest, every batch of others against its own checksum and the batch before it. It changes nothing. Run it on the
files of a node that is stopped: the last segments of a running one change under it.
Exit code 0 if all are whole, 3 if one is damaged, 2 if a path could not be looked at.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := []verified{}
			damaged := 0
			for _, path := range args {
				err := manifest.VerifyPath(cmd.Context(), vfs.OS(), path, func(r manifest.Report) {
					if r.Status == manifest.StatusDamaged {
						damaged++
					}
					out = append(out, verdictOf(r))
				})
				if err != nil {
					return usagef("%w", err)
				}
			}
			if err := o.print(cmd, out, func(w io.Writer) { drawVerified(w, out) }); err != nil {
				return err
			}
			if len(out) == 0 {
				return usagef("no segments below %s", strings.Join(args, ", "))
			}
			if damaged > 0 {
				return &exitError{exitRefused, fmt.Errorf("%d of %d segments are damaged: don't copy them; let the cluster replace them from a whole replica", damaged, len(out))}
			}
			return nil
		},
	}
}

func verdictOf(r manifest.Report) verified {
	v := verified{
		Path: r.Path, Status: string(r.Status), Base: int64(r.Base), End: int64(r.End),
		Batches: r.Batches, Bytes: r.Bytes, Problems: r.Problems,
	}
	if r.Root != (manifest.Hash{}) {
		v.Root = hex.EncodeToString(r.Root[:])
	}
	if v.Problems == nil {
		v.Problems = []string{}
	}
	return v
}

func drawVerified(w io.Writer, all []verified) {
	var rows [][]string
	for _, v := range all {
		rows = append(rows, []string{v.Path, v.Status, number(v.Base), number(v.End), strconv.FormatInt(v.Batches, 10), number(v.Bytes), orDash(strings.Join(v.Problems, "; "))})
	}
	table(w, "SEGMENT STATUS BASE END BATCHES BYTES PROBLEMS", rows)
}
