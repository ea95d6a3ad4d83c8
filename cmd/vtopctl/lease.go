package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func leaseCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "lease", Short: "Who may write what, since when, up to where it is safe"}
	cmd.AddCommand(leaseListCommand(o), leaseShowCommand(o), leaseTransferCommand(o))
	return cmd
}

func leaseListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "list [TOPIC]",
		Short: "List the leases of all topics, or of one",
		Long: `Lists a line for each range: who leads it under which epoch, the committed floor (promised for ever), the high
watermark, the log end and the log start, and its replicas with their lag. A question mark is a position that
could not be learned.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			leases, err := c.Leases(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			return o.print(cmd, leases, func(w io.Writer) { drawLeases(w, leases) })
		},
	}
}

func drawLeases(w io.Writer, leases []adminapi.Lease) {
	var rows [][]string
	for _, l := range leases {
		state := l.State
		if l.Reason != "" {
			state += " (" + l.Reason + ")"
		}
		rows = append(rows, []string{
			l.Topic + "/" + strconv.Itoa(int(l.Range)), orDash(l.Holder), strconv.Itoa(int(l.Epoch)),
			number(l.Floor), number(l.HighWatermark), number(l.LogEnd), number(l.LogStart), replicasText(l.Replicas), state,
		})
	}
	table(w, "RANGE HOLDER EPOCH FLOOR HIGH-WATERMARK LOG-END LOG-START REPLICAS STATE", rows)
}

// replicasText shows each replica by name, with its lag if it has one and its state if it isn't an ordinary one.
func replicasText(replicas []adminapi.Replica) string {
	var parts []string
	for _, r := range replicas {
		text := r.Node
		switch {
		case r.State != "leading" && r.State != "following":
			text += ":" + r.State
		case r.Lag > 0:
			text += ":-" + strconv.FormatInt(r.Lag, 10)
		}
		if r.Role == "learner" {
			text += "(learner)"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}

func leaseShowCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "show TOPIC/N",
		Short: "Show the whole story of one range",
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
			l, err := c.Lease(cmd.Context(), topic, index)
			if err != nil {
				return err
			}
			return o.print(cmd, l, func(w io.Writer) { drawLease(w, l) })
		},
	}
}

func drawLease(w io.Writer, l *adminapi.LeaseDetail) {
	fmt.Fprintf(w, "range           %s/%d (topic id %s)\n", l.Topic, l.Range, l.TopicID)
	fmt.Fprintf(w, "state           %s", l.State)
	if l.Reason != "" {
		fmt.Fprintf(w, ": %s", l.Reason)
	}
	fmt.Fprintf(w, "\nholder          %s (incarnation %d)\n", orDash(l.Holder), l.Incarnation)
	fmt.Fprintf(w, "epoch           %d, since %s: %s\n", l.Epoch, moment(l.Since), orDash(l.Why))
	fmt.Fprintf(w, "time left       %s by the holder's clock\n", milliseconds(l.TimeLeftMS))
	fmt.Fprintf(w, "committed floor %s\nhigh watermark  %s\nlog end         %s\nlog start       %s\n\n",
		number(l.Floor), number(l.HighWatermark), number(l.LogEnd), number(l.LogStart))
	var rows [][]string
	for _, r := range l.Replicas {
		rows = append(rows, []string{r.Node, strconv.FormatUint(r.ReplicaID, 10), r.Role, r.State, number(r.LogEnd), number(r.DurableEnd), number(r.Lag), orDash(r.Reason)})
	}
	table(w, "NODE REPLICA ROLE STATE LOG-END DURABLE-END LAG REASON", rows)
	for _, loss := range l.Losses {
		fmt.Fprintf(w, "\nLOST [%d, %d) at %s, of which [%d, %d) was promised: recovered from %s alone, after epoch %d: %s\n",
			loss.From, loss.To, moment(loss.At), loss.From, max(loss.From, loss.Floor), loss.Kept, loss.Epoch, loss.Reason)
	}
	fmt.Fprintln(w, "\nepoch table:")
	rows = nil
	for _, e := range l.Epochs {
		rows = append(rows, []string{strconv.Itoa(int(e.Epoch)), number(e.Start)})
	}
	table(w, "EPOCH START", rows)
	fmt.Fprintln(w, "\nlast changes, newest first:")
	rows = nil
	for _, c := range l.Changes {
		rows = append(rows, []string{moment(c.At), strconv.Itoa(int(c.Epoch)), orDash(c.Holder), number(c.Start), c.Why})
	}
	table(w, "AT EPOCH HOLDER START WHY", rows)
}

func leaseTransferCommand(o *options) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:     "transfer TOPIC/N --to NODE",
		Short:   "Move a lease to another voter",
		Example: "  vtopctl lease transfer orders/0 --to n2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, index, err := rangeArg(args[0])
			if err != nil {
				return err
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			l, err := c.TransferLease(cmd.Context(), topic, index, to)
			if err != nil {
				return err
			}
			return o.print(cmd, l, func(w io.Writer) {
				fmt.Fprintf(w, "%s is led by %s under epoch %d (%s)\n", args[0], l.Holder, l.Epoch, l.State)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "node that is to hold the lease; a voter of the range")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err)
	}
	return cmd
}
