//go:build cluster

package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/transporttest"
)

// The same scenarios against Apache Kafka of the same version as the Java client: three nodes, each broker and
// controller, at the defaults save for what three nodes need.
func TestClients_Apache(t *testing.T) {
	jars, err := kafkaJars()
	if err != nil {
		t.Skipf("did not run: %v", err)
	}
	a := &apache{t: t, jars: jars, base: t.TempDir()}
	for i := range 3 {
		a.nodes = append(a.nodes, &apacheNode{id: i + 1, kafka: transporttest.FreeAddr(t), control: transporttest.FreeAddr(t)})
	}
	t.Cleanup(a.close)
	for _, n := range a.nodes {
		if err := errors.Join(a.format(n), a.start(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.ready(3); err != nil {
		t.Fatal(err)
	}
	matrix(t, "apache", []target{a}, func(_ *testing.T, lane target) target { return lane })
}

type apache struct {
	t     *testing.T
	jars  string
	base  string
	nodes []*apacheNode
}

type apacheNode struct {
	id             int
	kafka, control string
	cmd            *exec.Cmd
	ended          chan struct{}
}

func (a *apache) java(class string, args ...string) *exec.Cmd {
	argv := append([]string{"-Xmx768m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(a.jars, "*"), class}, args...)
	cmd := exec.Command("java", argv...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (a *apache) config(n *apacheNode) string {
	return filepath.Join(a.base, fmt.Sprintf("n%d.properties", n.id))
}

func (a *apache) format(n *apacheNode) error {
	var voters []string
	for _, m := range a.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", m.id, m.control))
	}
	lines := []string{
		"process.roles=broker,controller", fmt.Sprintf("node.id=%d", n.id),
		"listeners=PLAINTEXT://" + n.kafka + ",CONTROLLER://" + n.control,
		"advertised.listeners=PLAINTEXT://" + n.kafka + ",CONTROLLER://" + n.control,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", "controller.listener.names=CONTROLLER",
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"log.dirs=" + filepath.Join(a.base, fmt.Sprintf("n%d", n.id)),
		"default.replication.factor=3", "offsets.topic.replication.factor=3", "transaction.state.log.replication.factor=3",
		"share.coordinator.state.topic.replication.factor=3", "min.insync.replicas=2",
	}
	if err := os.WriteFile(a.config(n), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	out, err := a.java("kafka.tools.StorageTool", "format", "--cluster-id", "dnRvcC1jbGllbnRzLXRlc3Q", "--config", a.config(n)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("format node %d: %w: %s", n.id, err, out)
	}
	return nil
}

func (a *apache) start(n *apacheNode) error {
	log, err := os.OpenFile(filepath.Join(a.base, fmt.Sprintf("n%d.log", n.id)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n.cmd, n.ended = a.java("kafka.Kafka", a.config(n)), make(chan struct{})
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		return err
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		_ = log.Close()
		close(ended)
	}(n.cmd, n.ended)
	return nil
}

func (a *apache) close() {
	for _, n := range a.nodes {
		if n.cmd != nil && n.cmd.Process != nil {
			_ = n.cmd.Process.Kill()
			<-n.ended
		}
	}
}

// with gives fn an admin client for at most limit.
func (a *apache) with(limit time.Duration, fn func(ctx context.Context, adm *kadm.Client) error) error {
	cl, err := kgo.NewClient(harness.ClientOptions(a.seeds())...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return fn(ctx, kadm.NewClient(cl))
}

// ready waits until so many brokers are there, and every range has all its replicas in sync.
func (a *apache) ready(count int) error {
	return eventually(3*time.Minute, "Apache Kafka ready", func() error {
		return a.with(10*time.Second, func(ctx context.Context, adm *kadm.Client) error {
			meta, err := adm.Metadata(ctx)
			if err != nil {
				return err
			}
			if len(meta.Brokers) != count {
				return fmt.Errorf("%d brokers", len(meta.Brokers))
			}
			return inSync(meta)
		})
	})
}

func inSync(meta kadm.Metadata) error {
	for _, topic := range meta.Topics {
		for _, p := range topic.Partitions {
			if p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
				return fmt.Errorf("%s/%d: leader %d, in sync %v of %v", topic.Topic, p.Partition, p.Leader, p.ISR, p.Replicas)
			}
		}
	}
	return nil
}

func (a *apache) seeds() []string {
	var out []string
	for _, n := range a.nodes {
		out = append(out, n.kafka)
	}
	return out
}

func (a *apache) replicas() int { return len(a.nodes) }

func (a *apache) leader(topic string) (int32, error) {
	leader := int32(-1)
	return leader, a.with(30*time.Second, func(ctx context.Context, adm *kadm.Client) error {
		topics, err := adm.ListTopics(ctx, topic)
		if err == nil {
			leader = topics[topic].Partitions[0].Leader
		}
		return err
	})
}

// move puts another replica first and asks for the election of the preferred leader.
func (a *apache) move(topic string) error {
	from, err := a.leader(topic)
	if err != nil {
		return err
	}
	order := []int32{from%3 + 1, (from+1)%3 + 1, from}
	return a.with(some, func(ctx context.Context, adm *kadm.Client) error {
		var req kadm.AlterPartitionAssignmentsReq
		req.Assign(topic, 0, order)
		answer, err := adm.AlterPartitionAssignments(ctx, req)
		if err := errors.Join(err, answer.Error()); err != nil {
			return err
		}
		return eventually(some, "election", func() error {
			if _, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{topic: {0: {}}}); err != nil {
				return err
			}
			now, err := a.leader(topic)
			if err == nil && now != order[0] {
				err = fmt.Errorf("the leader is %d, wanted %d", now, order[0])
			}
			return err
		})
	})
}

func (a *apache) killHolder(topic string) (func() error, error) {
	leader, err := a.leader(topic)
	if err != nil {
		return nil, err
	}
	return a.kill(leader)
}

func (a *apache) killCoordinator(group string) (func() error, error) {
	id, err := coordinator(a.seeds(), group)
	if err != nil {
		return nil, err
	}
	return a.kill(id)
}

func (a *apache) kill(id int32) (func() error, error) {
	n := a.nodes[id-1]
	if err := n.cmd.Process.Kill(); err != nil {
		return nil, err
	}
	<-n.ended
	return func() error { return errors.Join(a.start(n), a.ready(len(a.nodes))) }, nil
}
