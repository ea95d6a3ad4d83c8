package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func sealCommand(o *options) *cobra.Command {
	var epoch int32
	cmd := &cobra.Command{
		Use:   "seal TOPIC/N",
		Short: "Seal the tail of a range: close it, commit it, catalogue it",
		Long: `Has the leader of a range close its tail and seal it, so that the sealed segments, which replicas copy from one another,
reach its log end. It returns when the sealed segment is committed and in the catalogue. Writes go on meanwhile, into
the next tail. Sealing an empty tail succeeds with 0 records.

Exit code 0 sealed; 1 not yet committed (followers are behind: nothing is lost, seal again); 2 wrong usage or no
answer; 3 refused: the lease moved, or the range was never written.`,
		Example: "  vtopctl seal orders/0",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, n, err := rangeArg(args[0])
			if err != nil {
				return err
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			s, err := c.Seal(cmd.Context(), topic, n, adminapi.SealRequest{Epoch: epoch})
			if err != nil {
				return notStarted(err)
			}
			return o.print(cmd, s, func(w io.Writer) {
				fmt.Fprintf(w, "%s: sealed end %d, %d records sealed, %d sealed segments (by %s under epoch %d)\n", s.Range, s.SealedEnd, s.RecordsSealed, s.Segments, s.Leader, s.Epoch)
			})
		},
	}
	cmd.Flags().Int32Var(&epoch, "epoch", 0, "seal only if the lease is of this epoch (0: whichever it is)")
	return cmd
}
