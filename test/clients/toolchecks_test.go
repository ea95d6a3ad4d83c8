//go:build cluster

package clients

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// allTools are the rows of the table of tools, in order.
func allTools() []toolCheck {
	return []toolCheck{
		{"kafka-topics --create --describe --alter --list --delete", toolTopics},
		{"kafka-configs --alter --describe", toolConfigs},
		{"kafka-verifiable-producer", toolVerifiableProducer},
		{"kafka-verifiable-consumer", toolVerifiableConsumer(classic)},
		{"kafka-verifiable-consumer --group-protocol consumer", toolVerifiableConsumer(consumerNew)},
		{"kafka-producer-perf-test", toolPerfProducer},
		{"kafka-consumer-perf-test", toolPerfConsumer},
		{"kafka-get-offsets", toolOffsets},
		{"kafka-delete-records", toolDeleteRecords},
		{"kafka-consumer-groups --list --describe --members --state", toolGroupsDescribe},
		{"kafka-consumer-groups --reset-offsets", toolGroupsReset},
		{"kafka-consumer-groups --delete-offsets --delete", toolGroupsDelete},
		{"kafka-groups --list", toolAllGroups},
		{"kafka-reassign-partitions --execute --verify", toolReassign},
		{"kafka-leader-election", toolElection},
		{"kafka-log-dirs --describe", toolLogDirs},
		{"kafka-metadata-quorum describe --status --replication", toolQuorum},
		{"kafka-broker-api-versions", toolVersions},
		{"kafka-features describe", toolFeatures},
		{"kafka-cluster cluster-id", toolCluster},
		{"kafka-transactions list", toolTransactions},
	}
}

func toolTopics(k *kafkaTools) error {
	t := k.topic
	return errors.Join(
		k.want([]string{"Created topic " + t}, topicsTool, "--create", "--topic", t, "--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=3600000"),
		k.hasRanges(2),
		k.want([]string{"Topic: " + t + `\s.*PartitionCount: 2\s+ReplicationFactor: 3\s+Configs:.*retention.ms=3600000`, `Partition: 1\s+Leader: \d+\s+Replicas: \d+,\d+,\d+\s+Isr: \d+,\d+,\d+`}, topicsTool, "--describe", "--topic", t),
		k.want(nil, topicsTool, "--alter", "--topic", t, "--partitions", "3"),
		k.hasRanges(3),
		k.want([]string{"^" + t + "$"}, topicsTool, "--list"),
		k.want(nil, topicsTool, "--delete", "--topic", t),
		eventually(some, "the topic is gone", func() error {
			topics, err := k.admin.ListTopics(context.Background())
			if err == nil && topics.Has(t) {
				err = errors.New("it is listed")
			}
			return err
		}))
}

func toolConfigs(k *kafkaTools) error {
	of := []string{"--entity-type", "topics", "--entity-name", k.topic}
	return errors.Join(
		k.makeTopic(1),
		k.want([]string{"Completed updating config"}, configsTool, append(of, "--alter", "--add-config", "max.message.bytes=200000,retention.bytes=1000000")...),
		k.want([]string{"max.message.bytes=200000", "retention.bytes=1000000"}, configsTool, append(of, "--describe")...),
		k.want(nil, configsTool, append(of, "--alter", "--delete-config", "retention.bytes")...),
		k.want([]string{`retention.bytes=-1 .*DEFAULT_CONFIG`}, configsTool, append(of, "--describe", "--all")...))
}

func toolVerifiableProducer(k *kafkaTools) error {
	return errors.Join(k.makeTopic(3),
		k.want([]string{`"name":"tool_data".*`, `"sent":5000`, `"acked":5000`}, verifyProducer, "--topic", k.topic, "--max-messages", "5000", "--acks", "-1"),
		k.total(5000))
}

// total checks how many records stand in the topic.
func (k *kafkaTools) total(want int64) error {
	ends, err := k.ends()
	if err != nil {
		return err
	}
	var got int64
	for _, end := range ends {
		got += end
	}
	if got != want {
		return fmt.Errorf("%d records stand in the topic, wanted %d", got, want)
	}
	return nil
}

func (k *kafkaTools) filled(ranges, records int) error {
	return errors.Join(k.makeTopic(ranges), k.write(ranges, 0, records, kgo.NoCompression()))
}

func toolVerifiableConsumer(protocol string) func(k *kafkaTools) error {
	return func(k *kafkaTools) error {
		args := []string{"--topic", k.topic, "--group-id", k.topic, "--max-messages", "3000", "--reset-policy", "earliest"}
		if protocol == consumerNew {
			args = append(args, "--group-protocol", "consumer")
		}
		g := &members{x: k.cell}
		return errors.Join(k.filled(groupRanges, 3000),
			k.want([]string{`"name":"startup_complete"`, `"name":"partitions_assigned"`, `"name":"offsets_committed".*"success":true`, `"name":"shutdown_complete"`}, verifyConsumer, args...),
			g.allCommitted())
	}
}

func toolPerfProducer(k *kafkaTools) error {
	return errors.Join(k.makeTopic(3),
		k.want([]string{`^20000 records sent`}, perfProducer, "--topic", k.topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1", "--command-property", "acks=all"),
		k.total(20000))
}

func toolPerfConsumer(k *kafkaTools) error {
	return errors.Join(k.filled(3, 9000),
		k.want([]string{`, 9\d{3}, `}, perfConsumer, "--topic", k.topic, "--num-records", "9000", "--group", k.topic, "--timeout", "60000"))
}

func toolOffsets(k *kafkaTools) error {
	return errors.Join(k.filled(2, 100),
		k.want([]string{"^" + k.topic + ":0:50$", "^" + k.topic + ":1:50$"}, offsetsTool, "--topic", k.topic),
		k.want([]string{"^" + k.topic + ":0:0$"}, offsetsTool, "--topic", k.topic, "--time", "earliest"),
		k.want([]string{"^" + k.topic + `:0:\d+$`}, offsetsTool, "--topic", k.topic, "--time", "max-timestamp"))
}

func toolDeleteRecords(k *kafkaTools) error {
	if err := k.filled(1, 100); err != nil {
		return err
	}
	file, err := k.file(map[string]any{"version": 1, "partitions": []any{map[string]any{"topic": k.topic, "partition": 0, "offset": 40}}})
	if err != nil {
		return err
	}
	return errors.Join(k.want([]string{`low_watermark: 40`}, deleteTool, "--offset-json-file", file),
		k.want([]string{"^" + k.topic + ":0:40$"}, offsetsTool, "--topic", k.topic, "--time", "earliest"))
}

// committedAt makes a topic of 100 records in each range, and a group without members that committed 60 of each.
func (k *kafkaTools) committedAt() error {
	if err := k.filled(groupRanges, groupRanges*100); err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	for r := range int32(groupRanges) {
		offsets.Add(kadm.Offset{Topic: k.topic, Partition: r, At: 60, LeaderEpoch: -1})
	}
	return eventually(some, "commit", func() error { return k.admin.CommitAllOffsets(context.Background(), k.topic, offsets) })
}

func toolGroupsDescribe(k *kafkaTools) error {
	if err := k.filled(groupRanges, groupRanges*100); err != nil {
		return err
	}
	cl, err := k.open(kgo.ConsumeTopics(k.topic), kgo.ConsumerGroup(k.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.ClientID("watched"))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), some)
	defer cancel()
	for n := 0; n < groupRanges*100; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		n += fetches.NumRecords()
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	g := []string{"--group", k.topic, "--describe"}
	return errors.Join(
		k.want([]string{"^" + k.topic + "$"}, groupsTool, "--list"),
		k.want([]string{k.topic + `\s+` + k.topic + `\s+3\s+.*100\s+100\s+0\s+\S+\s+/127.0.0.1\s+watched`}, groupsTool, g...),
		k.want([]string{k.topic + `\s+\S+\s+/127.0.0.1\s+watched\s+4`}, groupsTool, append(g, "--members")...),
		k.want([]string{k.topic + `\s+127.0.0.1:\d+\s+\(\d+\)\s+cooperative-sticky\s+Stable\s+1`}, groupsTool, append(g, "--state")...))
}

func toolGroupsReset(k *kafkaTools) error {
	args := []string{"--group", k.topic, "--topic", k.topic, "--reset-offsets"}
	check := func(want int64) error {
		got, err := (&members{x: k.cell}).committed()
		if err != nil {
			return err
		}
		for r, offset := range got {
			if offset != want {
				return fmt.Errorf("the committed offset of range %d is %d, wanted %d", r, offset, want)
			}
		}
		return nil
	}
	return errors.Join(k.committedAt(),
		k.want([]string{k.topic + `\s+\d\s+0$`}, groupsTool, append(args, "--to-earliest", "--dry-run")...), check(60),
		k.want([]string{k.topic + `\s+\d\s+0$`}, groupsTool, append(args, "--to-earliest", "--execute")...), check(0),
		k.want([]string{k.topic + `\s+\d\s+100$`}, groupsTool, append(args, "--to-latest", "--execute")...), check(100),
		k.want([]string{k.topic + `\s+\d\s+70$`}, groupsTool, append(args, "--shift-by", "-30", "--execute")...), check(70),
		k.want([]string{k.topic + `\s+\d\s+0$`}, groupsTool, append(args, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")...), check(0))
}

func toolGroupsDelete(k *kafkaTools) error {
	return errors.Join(k.committedAt(),
		k.want([]string{`Successful`}, groupsTool, "--group", k.topic, "--topic", k.topic+":1", "--delete-offsets"),
		k.want([]string{`Deletion of requested consumer groups .* was successful`}, groupsTool, "--group", k.topic, "--delete"),
		eventually(some, "the group is gone", func() error {
			listed, err := k.admin.ListGroups(context.Background())
			if err == nil && slices.Contains(listed.Groups(), k.topic) {
				err = errors.New("it is listed")
			}
			return err
		}))
}

func toolAllGroups(k *kafkaTools) error {
	return errors.Join(k.committedAt(), k.want([]string{k.topic + `\s+Classic`}, allGroupsTool, "--list"))
}

// toolReassign moves a range of two replicas from the first two nodes to the last two.
func toolReassign(k *kafkaTools) error {
	resp, err := k.admin.CreateTopic(context.Background(), 1, 2, nil, k.topic)
	if err := errors.Join(err, resp.Err, k.hasRanges(1), k.write(1, 0, 1000, kgo.NoCompression())); err != nil {
		return err
	}
	replicas := func() ([]int32, error) {
		topics, err := k.admin.ListTopics(context.Background(), k.topic)
		if err != nil {
			return nil, err
		}
		return slices.Sorted(slices.Values(topics[k.topic].Partitions[0].Replicas)), nil
	}
	before, err := replicas()
	if err != nil {
		return err
	}
	wanted := slices.DeleteFunc(slices.Clone(k.ids), func(id int32) bool { return id == before[0] })
	file, err := k.file(map[string]any{"version": 1, "partitions": []any{map[string]any{"topic": k.topic, "partition": 0, "replicas": wanted}}})
	if err != nil {
		return err
	}
	return errors.Join(
		k.want([]string{`Successfully started partition reassignment`}, reassignTool, "--reassignment-json-file", file, "--execute"),
		eventually(2*some, "reassignment", func() error {
			return k.want([]string{`Reassignment of partition ` + k.topic + `-0 is completed`}, reassignTool, "--reassignment-json-file", file, "--verify")
		}),
		eventually(some, "replicas on the wanted nodes", func() error {
			after, err := replicas()
			if err == nil && !slices.Equal(after, slices.Sorted(slices.Values(wanted))) {
				err = fmt.Errorf("replicas are on %v, wanted %v", after, wanted)
			}
			return err
		}),
		k.total(1000))
}

func toolElection(k *kafkaTools) error {
	if err := k.makeTopic(1); err != nil {
		return err
	}
	if err := k.target.move(k.topic); err != nil {
		return err
	}
	return k.want([]string{`Successfully completed leader election \(PREFERRED\) for partitions ` + k.topic + `-0|Valid replica already elected`},
		electionTool, "--election-type", "preferred", "--topic", k.topic, "--partition", "0")
}

func toolLogDirs(k *kafkaTools) error {
	return errors.Join(k.filled(1, 1000),
		k.want([]string{`"partition":"` + k.topic + `-0","size":[1-9]\d+`}, logDirsTool, "--describe", "--topic-list", k.topic))
}

func toolQuorum(k *kafkaTools) error {
	status, err := k.run(quorumTool, "describe", "--status")
	if err != nil {
		return err
	}
	for _, p := range []string{"ClusterId:", "LeaderId:", "LeaderEpoch:", "HighWatermark:", "CurrentVoters:"} {
		if !strings.Contains(status, p) {
			return fmt.Errorf("no %s in %s", p, tail(status))
		}
	}
	return k.want([]string{`Leader`, `Follower`}, quorumTool, "describe", "--replication")
}

func toolVersions(k *kafkaTools) error {
	return k.want([]string{`Produce\(0\): `, `OffsetCommit\(8\): `, `ConsumerGroupHeartbeat\(68\): `}, versionsTool)
}

func toolFeatures(k *kafkaTools) error {
	return k.want([]string{`Feature: metadata.version`}, featuresTool, "describe")
}

func toolCluster(k *kafkaTools) error {
	return k.want([]string{`Cluster ID: \S{22}`}, clusterTool, "cluster-id")
}

func toolTransactions(k *kafkaTools) error {
	return k.want([]string{`TransactionalId`}, txnTool, "list")
}
