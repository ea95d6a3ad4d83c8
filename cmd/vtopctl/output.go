package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// print writes v as JSON, or as the table that draw makes.
func (o *options) print(cmd *cobra.Command, v any, draw func(w io.Writer)) error {
	out := cmd.OutOrStdout()
	if o.output == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	draw(out)
	return nil
}

// table writes rows under a header, in columns.
func table(out io.Writer, header string, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 4, 3, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(header, " ", "\t"))
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
}

// number shows an offset or count; what was not learned is a question mark, never 0 (I12).
func number(n int64) string {
	if n == adminapi.Unknown {
		return "?"
	}
	return strconv.FormatInt(n, 10)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func milliseconds(ms int64) string {
	if ms == adminapi.Unknown {
		return "?"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// rangeArg reads TOPIC/N.
func rangeArg(arg string) (topic string, index int32, err error) {
	slash := strings.LastIndexByte(arg, '/')
	if slash < 1 {
		return "", 0, usagef("%q: want TOPIC/N, as orders/0", arg)
	}
	n, err := strconv.ParseInt(arg[slash+1:], 10, 32)
	if err != nil || n < 0 {
		return "", 0, usagef("%q: want TOPIC/N with the number of a range, as orders/0", arg)
	}
	return arg[:slash], int32(n), nil
}
