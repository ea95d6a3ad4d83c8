//go:build cluster

package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/vtop-log/vtop/test/harness"
)

// kafkaTools is a server that Kafka's own command-line tools are pointed at.
type kafkaTools struct {
	*cell
	jars string
	dir  string
	ids  []int32 // of the nodes
}

// classes are where the scripts of Kafka's distribution point at.
const (
	topicsTool     = "org.apache.kafka.tools.TopicCommand"
	configsTool    = "org.apache.kafka.tools.ConfigCommand"
	groupsTool     = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	offsetsTool    = "org.apache.kafka.tools.GetOffsetShell"
	reassignTool   = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
	electionTool   = "org.apache.kafka.tools.LeaderElectionCommand"
	logDirsTool    = "org.apache.kafka.tools.LogDirsCommand"
	quorumTool     = "org.apache.kafka.tools.MetadataQuorumCommand"
	deleteTool     = "org.apache.kafka.tools.DeleteRecordsCommand"
	versionsTool   = "org.apache.kafka.tools.BrokerApiVersionsCommand"
	clusterTool    = "org.apache.kafka.tools.ClusterTool"
	featuresTool   = "org.apache.kafka.tools.FeatureCommand"
	allGroupsTool  = "org.apache.kafka.tools.GroupsCommand"
	txnTool        = "org.apache.kafka.tools.TransactionsCommand"
	verifyProducer = "org.apache.kafka.tools.VerifiableProducer"
	verifyConsumer = "org.apache.kafka.tools.VerifiableConsumer"
	perfProducer   = "org.apache.kafka.tools.ProducerPerformance"
	perfConsumer   = "org.apache.kafka.tools.ConsumerPerformance"
)

// run runs a tool to its end, for at most two minutes, and gives its standard output.
func (k *kafkaTools) run(class string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	argv := append(append([]string{}, jvm[1:]...), "-cp", filepath.Join(k.jars, "*"), class, "--bootstrap-server", strings.Join(k.target.seeds(), ","))
	if class == clusterTool {
		argv = append(argv[:len(argv)-2], args[0], "--bootstrap-server", strings.Join(k.target.seeds(), ","))
		args = args[1:]
	}
	cmd := exec.CommandContext(ctx, jvm[0], append(argv, args...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s %s", err, tail(out.String()), tail(said.String()))
	}
	if strings.Contains(said.String(), "] ERROR ") || strings.Contains(said.String(), "Exception in thread") {
		return out.String(), fmt.Errorf("it told of an error: %s", tail(said.String()))
	}
	return out.String(), nil
}

func tail(s string) string {
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-400):]
}

// want runs a tool and looks for all patterns, regular expressions, in its output.
func (k *kafkaTools) want(patterns []string, class string, args ...string) error {
	out, err := k.run(class, args...)
	if err != nil {
		return err
	}
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(out) {
			return fmt.Errorf("nothing like %q in: %s", p, tail(out))
		}
	}
	return nil
}

// file writes JSON for a tool.
func (k *kafkaTools) file(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(k.dir, "*.json")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	return f.Name(), errors.Join(err, f.Close())
}

type toolCheck struct {
	name string
	run  func(k *kafkaTools) error
}

// Kafka's own command-line tools, against three vtopd processes. Each check makes its own topic.
func TestTools_Vtop(t *testing.T) {
	jars, err := kafkaJars()
	if err != nil {
		t.Skipf("did not run: %v", err)
	}
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: []string{"--log-level", "info"}})
	toolMatrix(t, "vtop-tools", jars, vtop{c})
}

func toolMatrix(t *testing.T, name, jars string, tg target) {
	res := newResults(name)
	wanted := regexp.MustCompile("(?i)" + os.Getenv("VTOP_FEATURES"))
	for i, check := range allTools() {
		if !wanted.MatchString(check.name) {
			continue
		}
		t.Run(check.name, func(t *testing.T) {
			topic, out := fmt.Sprintf("tool-%03d", i), result{Client: "Kafka tools", Feature: check.name, Outcome: ok}
			err := tryTool(t, check, jars, tg, topic)
			if err != nil {
				t.Logf("FAILED ONCE: %v", err)
				out.Once = err.Error()
				err = tryTool(t, check, jars, tg, topic+"-again")
			}
			if err != nil {
				t.Error(err)
				out.Outcome, out.Detail = failed, err.Error()
			}
			res.add(out)
		})
	}
	if err := res.keep(os.Getenv("VTOP_FEATURES") == ""); err != nil {
		t.Error(err)
	}
}

func tryTool(t *testing.T, check toolCheck, jars string, tg target, topic string) error {
	k := &kafkaTools{cell: &cell{t: t, target: tg, topic: topic}, jars: jars, dir: t.TempDir()}
	cl, err := k.open()
	if err != nil {
		return err
	}
	defer cl.Close()
	k.kgo, k.admin = cl, kadm.NewClient(cl)
	brokers, err := k.admin.ListBrokers(context.Background())
	if err != nil {
		return err
	}
	k.ids = brokers.NodeIDs()
	return check.run(k)
}
