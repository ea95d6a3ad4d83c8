package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"
)

func segmentCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "segment", Short: "The files of a range, on a live node or offline"}
	cmd.AddCommand(segmentListCommand(o), segmentVerifyCommand(o))
	return cmd
}

func segmentListCommand(o *options) *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:   "list TOPIC/N [--node NODE]",
		Short: "List the segments of a range on one node",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, index, err := rangeArg(args[0])
			if err != nil {
				return err
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			segs, err := c.Segments(cmd.Context(), topic, index, node)
			if err != nil {
				return err
			}
			return o.print(cmd, segs, func(w io.Writer) {
				var rows [][]string
				for _, s := range segs {
					rows = append(rows, []string{s.Node, number(s.Base), number(s.End), number(s.SizeBytes), s.State, strconv.FormatBool(s.Catalogued), moment(s.SealedAt), orDash(s.Root)})
				}
				table(w, "NODE BASE END BYTES STATE CATALOGUED SEALED ROOT", rows)
			})
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "node to ask (default: the holder of the lease)")
	return cmd
}
