package main

import (
	"fmt"

	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/kafka"
)

// kafkaConfig is what the settings say of the port for Kafka clients, without its certificate.
func (c *config) kafkaConfig() kafka.Config {
	out := kafka.DefaultConfig()
	out.AutoCreate, out.DefaultRanges, out.DefaultReplicas = c.AutoCreateTopics, c.DefaultRanges, c.DefaultReplicas
	out.MaxConnections, out.MaxConnectionsPerIP = c.MaxConnections, c.MaxConnectionsPerIP
	out.MaxProduceFrame, out.RequestBytes, out.ResponseBytes = int(c.MaxRequest), int64(c.RequestMemory), int64(c.ResponseMemory)
	out.ProduceQuota, out.FetchQuota = int64(c.ProduceQuota), int64(c.FetchQuota)
	return out
}

// loadKafkaTLS reads the certificate of the client port; nil if it speaks plaintext.
func (c *config) loadKafkaTLS() (*kafka.TLS, error) {
	if c.KafkaTLSCert == "" {
		return nil, nil
	}
	t, err := kafka.LoadTLS(kafka.TLSFiles{Cert: c.KafkaTLSCert, Key: c.KafkaTLSKey, CA: c.KafkaTLSCA}, kafka.ClientAuth(c.KafkaClientAuth))
	if err != nil {
		return nil, fmt.Errorf("%w: --kafka-tls-cert, --kafka-tls-key, --kafka-tls-ca, --kafka-client-auth: %w", errUsage, err)
	}
	return t, nil
}

// checkClientPort compares the settings of the client port with one another.
func (c *config) checkClientPort() (errs []error) {
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if (c.KafkaTLSCert == "") != (c.KafkaTLSKey == "") {
		refuse("--kafka-tls-cert and --kafka-tls-key go together: give both or none")
	}
	auth := kafka.ClientAuth(c.KafkaClientAuth)
	switch auth {
	case kafka.ClientAuthNone, kafka.ClientAuthRequest, kafka.ClientAuthRequire:
	default:
		refuse("--kafka-client-auth %q: want none, request or require", c.KafkaClientAuth)
	}
	switch asked := auth != kafka.ClientAuthNone; {
	case asked && c.KafkaTLSCert == "":
		refuse("--kafka-client-auth %s needs TLS: give --kafka-tls-cert and --kafka-tls-key", auth)
	case asked && c.KafkaTLSCA == "":
		refuse("--kafka-client-auth %s needs --kafka-tls-ca with the authorities whose clients are taken", auth)
	case !asked && c.KafkaTLSCA != "":
		refuse("--kafka-tls-ca says whose client certificates are taken, and no client is asked for one: add --kafka-client-auth request or require")
	}
	if c.OffsetsRetention == 0 {
		refuse("--offsets-retention 0s: want how long offsets are kept, or below 0 for ever")
	}
	for flag, n := range map[string]size{"--kafka-max-request": c.MaxRequest, "--kafka-request-memory": c.RequestMemory,
		"--kafka-response-memory": c.ResponseMemory, "--produce-quota": c.ProduceQuota, "--fetch-quota": c.FetchQuota} {
		if n > fsm.MaxQuota {
			refuse("%s %s: want at most %s", flag, n, size(fsm.MaxQuota))
			return errs // they would not fit what follows
		}
	}
	if c.MaxRequest > 1<<30 {
		refuse("--kafka-max-request %s: want at most %s", c.MaxRequest, size(1<<30))
		return errs
	}
	if err := c.kafkaConfig().Validate(); err != nil && len(errs) == 0 && c.DefaultRanges > 0 && c.DefaultReplicas > 0 {
		refuse("--kafka-max-connections, --kafka-max-request, --kafka-request-memory, --kafka-response-memory: %w", err)
	}
	return errs
}
