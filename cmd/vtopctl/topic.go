package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

func topicCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "topic", Short: "Create, list, describe and delete topics"}
	cmd.AddCommand(topicCreateCommand(o), topicListCommand(o), topicDescribeCommand(o), topicDeleteCommand(o))
	return cmd
}

func topicCreateCommand(o *options) *cobra.Command {
	var req adminapi.CreateTopic
	var config []string
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a topic",
		Example: "  vtopctl topic create orders --ranges 12 --replicas 3 --config retention.ms=604800000",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			req.Config = map[string]string{}
			for _, kv := range config {
				k, v, ok := strings.Cut(kv, "=")
				if !ok {
					return usagef("--config %q: want NAME=VALUE", kv)
				}
				req.Config[k] = v
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			t, err := c.CreateTopic(cmd.Context(), req)
			if err != nil {
				return err
			}
			return o.print(cmd, t, func(w io.Writer) {
				fmt.Fprintf(w, "topic %s created: %d ranges, %d replicas, id %s\n", t.Name, t.Ranges, t.Replicas, t.ID)
			})
		},
	}
	cmd.Flags().IntVar(&req.Ranges, "ranges", 0, "number of ranges (0: the cluster's default)")
	cmd.Flags().IntVar(&req.Replicas, "replicas", 0, "replicas of each range (0: the cluster's default)")
	cmd.Flags().StringArrayVar(&config, "config", nil, "setting NAME=VALUE under Kafka's name; may be repeated")
	return cmd
}

func topicListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the topics",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			topics, err := c.Topics(cmd.Context())
			if err != nil {
				return err
			}
			return o.print(cmd, topics, func(w io.Writer) {
				var rows [][]string
				for _, t := range topics {
					rows = append(rows, []string{t.Name, strconv.Itoa(t.Ranges), strconv.Itoa(t.Replicas), t.ID, orDash(configText(t.Config))})
				}
				table(w, "NAME RANGES REPLICAS ID CONFIG", rows)
			})
		},
	}
}

func configText(config map[string]string) string {
	var parts []string
	for k, v := range config {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func topicDescribeCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "describe NAME",
		Short: "Show a topic with its ranges",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			t, err := c.Topic(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return o.print(cmd, t, func(w io.Writer) {
				fmt.Fprintf(w, "topic %s, id %s, %d ranges, %d replicas\nconfig %s\n\n", t.Name, t.ID, t.Ranges, t.Replicas, orDash(configText(t.Config)))
				drawLeases(w, t.Leases)
			})
		},
	}
}

func topicDeleteCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a topic and all its records",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			if err := c.DeleteTopic(cmd.Context(), args[0]); err != nil {
				return err
			}
			gone := struct {
				Name    string `json:"name"`
				Deleted bool   `json:"deleted"`
			}{args[0], true}
			return o.print(cmd, gone, func(w io.Writer) { fmt.Fprintf(w, "topic %s deleted\n", args[0]) })
		},
	}
}
