//go:build cluster

package clients

import (
	"errors"
	"os/exec"
	"path/filepath"
	"sync"
)

// client is one row of the table.
type client struct {
	name string
	// prepare finds or fetches what the program needs, and fills argv and env; its error is why the client doesn't run.
	prepare func(c *client) error
	// madeByProducing marks a client without admin requests: its topics are made when it first produces.
	madeByProducing bool
	argv, env       []string
	version         string
	once            sync.Once
	missing         error // of prepare
}

// prepared prepares the client once, and says why it can't run.
func (c *client) prepared() error {
	c.once.Do(func() { c.missing = c.prepare(c) })
	return c.missing
}

// allClients are the rows, in the order of the table.
func allClients() []*client {
	return []*client{
		{name: "kcat", prepare: kcat(false), madeByProducing: true},
		{name: "kcat, newest librdkafka", prepare: kcat(true), madeByProducing: true},
		{name: "confluent-kafka", prepare: python("confluent.py")},
		{name: "kafka-python", prepare: python("kafkapython.py")},
		{name: "franz-go", prepare: golang("franz")},
		{name: "sarama", prepare: golang("sarama")},
		{name: "kafka-go", prepare: golang("kafkago")},
		{name: "kafkajs", prepare: kafkajs},
		{name: "Java client", prepare: java},
		{name: "Kafka console tools", prepare: console},
	}
}

func golang(program string) func(*client) error {
	return func(c *client) error {
		dir, err := goPrograms()
		c.argv = []string{filepath.Join(dir, program)}
		return err
	}
}

func kcat(newest bool) func(*client) error {
	return func(c *client) error {
		if _, err := exec.LookPath("kcat"); err != nil {
			return errors.New("kcat is not installed")
		}
		if err := golang("kcat")(c); err != nil || !newest {
			return err
		}
		dir, err := newestLibrdkafka()
		c.env = []string{"VTOP_LIBRDKAFKA=" + dir}
		return err
	}
}

func python(program string) func(*client) error {
	return func(c *client) error {
		if _, err := exec.LookPath("python3"); err != nil {
			return errors.New("python3 is not installed")
		}
		packages, err := pythonPackages()
		c.argv, c.env = []string{"python3", programs("python", program)}, []string{"PYTHONPATH=" + packages, "PYTHONDONTWRITEBYTECODE=1"}
		return err
	}
}

func kafkajs(c *client) error {
	if _, err := exec.LookPath("node"); err != nil {
		return errors.New("node is not installed")
	}
	modules, err := nodeModules()
	c.argv, c.env = []string{"node", programs("node", "kafkajs.js")}, []string{"VTOP_NODE_MODULES=" + modules, "KAFKAJS_NO_PARTITIONER_WARNING=1"}
	return err
}

// jvm keeps the JVMs of the tests small and quick to start.
var jvm = []string{"java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}

func java(c *client) error {
	jars, err := kafkaJars()
	if err != nil {
		return err
	}
	classes, err := javaProgram()
	c.argv = append(append([]string{}, jvm...), "-cp", classes+":"+filepath.Join(jars, "*"), "Program")
	return err
}

func console(c *client) error {
	jars, err := kafkaJars()
	if err != nil {
		return err
	}
	c.env = []string{"VTOP_KAFKA_JARS=" + jars}
	return golang("console")(c)
}
