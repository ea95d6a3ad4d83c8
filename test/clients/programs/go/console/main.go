// Console is the program of Kafka's own command-line tools: kafka-topics, kafka-console-producer and
// kafka-console-consumer. VTOP_KAFKA_JARS names the directory of their jars.
package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vtop-log/vtop/test/clients/programs/go/lines"
	"github.com/vtop-log/vtop/test/clients/programs/go/program"
)

type console struct{ seeds string }

func main() {
	program.Main(program.Hello{Client: "Kafka console tools", Version: version()}, func(seeds []string) program.Client {
		c := console{strings.Join(seeds, ",")}
		return lines.Tool{
			CreateLine: c.create, ProduceLine: c.produce, ConsumeLine: c.consume, GroupLine: c.group,
			Parse: parse, Failed: failed,
		}
	})
}

func jars() string { return os.Getenv("VTOP_KAFKA_JARS") }

// version is in the name of the jar.
func version() string {
	found, _ := filepath.Glob(filepath.Join(jars(), "kafka-tools-[0-9]*.jar"))
	if len(found) != 1 {
		return "unknown"
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "kafka-tools-"), ".jar")
}

func (c console) java(class string, args ...string) []string {
	return append([]string{"java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(jars(), "*"), class, "--bootstrap-server", c.seeds}, args...)
}

func (c console) create(cmd program.Command) []string {
	return c.java("org.apache.kafka.tools.TopicCommand", "--create", "--topic", cmd.Topic,
		"--partitions", strconv.Itoa(cmd.Ranges), "--replication-factor", strconv.Itoa(cmd.Replicas))
}

func (c console) produce(cmd program.Command) []string {
	codec := cmd.Codec
	if codec == "" {
		codec = "none"
	}
	// The tool's own default is three retries, 100 ms apart: of the producer's default only that is put back.
	return c.java("org.apache.kafka.tools.ConsoleProducer", "--topic", cmd.Topic, "--compression-codec", codec,
		"--message-send-max-retries", "2147483647",
		"--command-property", "acks=all", "--command-property", "linger.ms=5",
		"--command-property", "enable.idempotence="+strconv.FormatBool(cmd.Idempotent))
}

func (c console) consumer(args ...string) []string {
	return c.java("org.apache.kafka.tools.consumer.ConsoleConsumer", append([]string{
		"--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true", "--from-beginning"}, args...)...)
}

func (c console) consume(cmd program.Command) []string { return c.consumer("--topic", cmd.Topic) }

func (c console) group(cmd program.Command) ([]string, error) {
	args := []string{"--topic", cmd.Topic, "--group", cmd.Group, "--command-property", "auto.commit.interval.ms=100"}
	if cmd.Protocol == "consumer" {
		args = append(args, "--command-property", "group.protocol=consumer")
	} else {
		args = append(args, "--command-property", "session.timeout.ms=6000", "--command-property", "heartbeat.interval.ms=1000")
	}
	if cmd.Instance != "" {
		args = append(args, "--command-property", "group.instance.id="+cmd.Instance)
	}
	return c.consumer(args...), nil
}

// parse reads "Partition:0	Offset:5	value".
func parse(line string) (program.Record, bool) {
	f := strings.SplitN(line, "\t", 3)
	if len(f) != 3 {
		return program.Record{}, false
	}
	r, err1 := strconv.ParseInt(strings.TrimPrefix(f[0], "Partition:"), 10, 32)
	offset, err2 := strconv.ParseInt(strings.TrimPrefix(f[1], "Offset:"), 10, 64)
	return program.Read(int32(r), offset, []byte(f[2])), err1 == nil && err2 == nil
}

// failed takes an error that the tools log for a failure; the client's own warnings of a broken connection are none, and it is none
// that a consumer which ends tells a coordinator so that is none any more: it doesn't ask for the new one.
func failed(line string) bool {
	leaves := strings.Contains(line, "LeaveGroup request") && strings.Contains(line, "not the correct coordinator")
	return strings.Contains(line, "] ERROR ") && !leaves
}
