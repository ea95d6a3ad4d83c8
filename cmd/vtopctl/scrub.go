package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func scrubCommand(o *options) *cobra.Command {
	var rate byteRate
	cmd := &cobra.Command{
		Use:   "scrub [TOPIC[/N]]",
		Short: "Read every sealed segment of every replica, and compare it with the catalogue",
		Long: `Has every node read its sealed segments, every byte, and compare each with the root in the catalogue. A verdict is listed
for each segment of each replica as it comes: ok; bad (that node heals it from a whole replica); unknown, if there was
nothing to compare with or the node did not answer. Unknown is never ok.

Exit code 0 all are ok, 1 some are unknown and none is bad, 2 wrong usage or the answer broke off, 3 some are bad.`,
		Example: "  vtopctl scrub\n  vtopctl scrub orders --max-rate 50MB/s\n  vtopctl scrub orders/0 -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := adminapi.ScrubRequest{Range: -1, MaxRate: int64(rate)}
			if len(args) == 1 {
				req.Topic = args[0]
			}
			if strings.Contains(req.Topic, "/") {
				var err error
				if req.Topic, req.Range, err = rangeArg(args[0]); err != nil {
					return err
				}
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			out := newScrubOut(cmd.OutOrStdout(), o.output == "json")
			sum, err := c.Scrub(cmd.Context(), req, out.verdict)
			if err := out.end(sum, err); err != nil {
				return notStarted(err)
			}
			switch {
			case err != nil:
				return err
			case sum.Bad > 0:
				return &exitError{exitRefused, fmt.Errorf("%d segments are bad: they are served to nobody, and healed from whole replicas (vtopctl heal status)", sum.Bad)}
			case sum.Unknown > 0:
				return &exitError{exitFailed, fmt.Errorf("%d segments could not be compared", sum.Unknown)}
			}
			return nil
		},
	}
	cmd.Flags().Var(&rate, "max-rate", "most bytes a second and node, as 50MB/s (default: the node's own pace)")
	return cmd
}

// scrubOut writes verdicts as they come: there may be more of them than should be held.
type scrubOut struct {
	w     io.Writer
	json  bool
	count int
}

func newScrubOut(w io.Writer, asJSON bool) *scrubOut { return &scrubOut{w: w, json: asJSON} }

func (s *scrubOut) verdict(v adminapi.ScrubVerdict) error {
	s.count++
	if !s.json {
		_, err := fmt.Fprintf(s.w, "%-8s%-24s%-14s%-12s%12s  %s\n", v.Verdict, v.Range, v.Node, number(v.Base), size(v.Bytes), v.Reason)
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	start := ",\n    "
	if s.count == 1 {
		start = "{\n  \"verdicts\": [\n    "
	}
	_, err = fmt.Fprintf(s.w, "%s%s", start, data)
	return err
}

// end writes the counts, or in JSON the error, so that what was written is whole JSON also when the answer broke off.
func (s *scrubOut) end(sum *adminapi.ScrubSummary, failed error) error {
	if !s.json {
		if failed != nil {
			return nil
		}
		_, err := fmt.Fprintf(s.w, "%d ok, %d bad, %d unknown; %s read\n", sum.OK, sum.Bad, sum.Unknown, size(sum.Bytes))
		return err
	}
	type tail struct {
		Summary *adminapi.ScrubSummary `json:"summary"`
		Error   string                 `json:"error,omitempty"`
	}
	t := tail{Summary: sum}
	if failed != nil {
		t.Error = failed.Error()
	}
	data, err := json.Marshal(t)
	start := "\n  ],\n  "
	if s.count == 0 {
		start = "{\n  \"verdicts\": [],\n  "
	}
	_, werr := fmt.Fprintf(s.w, "%s%s\n}\n", start, strings.TrimSuffix(strings.TrimPrefix(string(data), "{"), "}"))
	return errors.Join(err, werr)
}
