package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/hashicorp/go-hclog"
	"github.com/pelletier/go-toml/v2"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/kafka"
	"github.com/vtop-log/vtop/transport/tlsid"
)

// config is all that an operator may set, from flags, environment (VTOP_*) and a file, in that order of weight.
// The names in the file are the names of the flags.
type config struct {
	NodeID  string `toml:"node-id"`
	DataDir string `toml:"data-dir"`
	Rack    string `toml:"rack"`

	KafkaAddr       string `toml:"kafka-addr"`
	KafkaAdvertise  string `toml:"kafka-advertise"`
	PeerAddr        string `toml:"peer-addr"`
	PeerAdvertise   string `toml:"peer-advertise"`
	GossipAddr      string `toml:"gossip-addr"`
	GossipAdvertise string `toml:"gossip-advertise"`
	AdminAddr       string `toml:"admin-addr"`
	AdminAdvertise  string `toml:"admin-advertise"`

	Join            []string `toml:"join"`
	BootstrapExpect int      `toml:"bootstrap-expect"`

	TLSCert         string `toml:"tls-cert"`
	TLSKey          string `toml:"tls-key"`
	TLSCA           string `toml:"tls-ca"`
	KafkaTLSCert    string `toml:"kafka-tls-cert"`
	KafkaTLSKey     string `toml:"kafka-tls-key"`
	KafkaTLSCA      string `toml:"kafka-tls-ca"`
	KafkaClientAuth string `toml:"kafka-client-auth"`

	GossipKey      string `toml:"gossip-key"`
	AllowPlaintext bool   `toml:"allow-plaintext"`

	LogLevel  string `toml:"log-level"`
	LogFormat string `toml:"log-format"`

	LeaseTime      duration `toml:"lease-time"`
	NodeTimeout    duration `toml:"node-timeout"`
	RaftHeartbeat  duration `toml:"raft-heartbeat"`
	HealAfter      duration `toml:"heal-after"`
	DiskStallLimit duration `toml:"disk-stall-limit"`
	DiskReserve    size     `toml:"disk-reserve"`

	TransferAllow []string `toml:"transfer-allow"`
	RepairRate    size     `toml:"repair-rate"`
	ScrubRate     size     `toml:"scrub-rate"`
	PinIdle       duration `toml:"pin-idle"`

	AutoCreateTopics bool  `toml:"auto-create-topics"`
	DefaultRanges    int32 `toml:"default-ranges"`
	DefaultReplicas  int16 `toml:"default-replicas"`

	OffsetsRetention duration `toml:"offsets-retention"`

	AllowDrills bool `toml:"allow-drills"`
	Supervised  bool `toml:"supervised"`

	MaxConnections      int  `toml:"kafka-max-connections"`
	MaxConnectionsPerIP int  `toml:"kafka-max-connections-per-ip"`
	MaxRequest          size `toml:"kafka-max-request"`
	RequestMemory       size `toml:"kafka-request-memory"`
	ResponseMemory      size `toml:"kafka-response-memory"`
	ProduceQuota        size `toml:"produce-quota"`
	FetchQuota          size `toml:"fetch-quota"`
}

// defaults are what a flag's help shows.
func defaults() config {
	host, _ := os.Hostname()
	limits := kafka.DefaultConfig()
	return config{
		NodeID:           host,
		DataDir:          "./vtop-data",
		KafkaAddr:        "127.0.0.1:9092",
		PeerAddr:         "127.0.0.1:9640",
		GossipAddr:       "127.0.0.1:9641",
		AdminAddr:        "127.0.0.1:9642",
		BootstrapExpect:  1,
		LogLevel:         "info",
		LogFormat:        "text",
		LeaseTime:        duration(10 * time.Second),
		NodeTimeout:      duration(3 * time.Second),
		RaftHeartbeat:    duration(time.Second),
		HealAfter:        duration(10 * time.Minute),
		DiskStallLimit:   duration(10 * time.Second),
		DiskReserve:      0,
		ScrubRate:        8 << 20,
		PinIdle:          duration(2 * time.Minute),
		AutoCreateTopics: true,
		DefaultRanges:    1,
		DefaultReplicas:  3,
		OffsetsRetention: duration(7 * 24 * time.Hour),
		KafkaClientAuth:  string(kafka.ClientAuthNone),
		MaxConnections:   limits.MaxConnections,
		MaxRequest:       size(limits.MaxProduceFrame),
		RequestMemory:    size(limits.RequestBytes),
		ResponseMemory:   size(limits.ResponseBytes),
	}
}

// validate compares the settings with one another and says what to change.
func (c *config) validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := tlsid.CheckName(vtop.NodeName(c.NodeID)); err != nil || len(c.NodeID) > 63 {
		refuse("--node-id %q: want 1 to 63 characters that name this node alone and fit into a certificate (%v)", c.NodeID, err)
	}
	for _, a := range []struct{ flag, bind, advertise string }{
		{"kafka", c.KafkaAddr, c.KafkaAdvertise}, {"peer", c.PeerAddr, c.PeerAdvertise},
		{"gossip", c.GossipAddr, c.GossipAdvertise}, {"admin", c.AdminAddr, c.AdminAdvertise},
	} {
		if err := checkAddress(a.flag, a.bind, a.advertise); err != nil {
			refuse("--%s-addr %q: %w", a.flag, a.bind, err)
		}
	}
	if c.BootstrapExpect < 1 {
		refuse("--bootstrap-expect %d: want the number of nodes that found the cluster, 1 or more", c.BootstrapExpect)
	}
	if c.BootstrapExpect > 1 && len(c.Join) == 0 {
		refuse("--bootstrap-expect %d needs --join with the addresses of the founding nodes", c.BootstrapExpect)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") || (c.TLSCert == "") != (c.TLSCA == "") {
		refuse("--tls-cert, --tls-key and --tls-ca go together: give all three or none")
	}
	if c.TLSCert == "" && !c.AllowPlaintext {
		for flag, addr := range map[string]string{"--peer-addr": c.PeerAddr, "--admin-addr": c.AdminAddr} {
			if !loopback(addr) {
				refuse("%s %s is not loopback and has no TLS: give --tls-cert, --tls-key and --tls-ca (vtopctl cert issue makes them), or --allow-plaintext if the network is trusted", flag, addr)
			}
		}
	}
	if key, err := base64.StdEncoding.DecodeString(c.GossipKey); err != nil || !slices.Contains([]int{0, 16, 24, 32}, len(key)) {
		refuse("--gossip-key: want base64 of 16, 24 or 32 bytes (openssl rand -base64 32), got %d characters that give %d", len(c.GossipKey), len(key))
	}
	for _, name := range c.TransferAllow {
		if len(name) > 63 {
			refuse("--transfer-allow %q: want names of nodes", name)
		}
	}
	if c.RepairRate != 0 && c.RepairRate < 64<<10 {
		refuse("--repair-rate %s: want 64 KiB a second or more, or 0 for a budget that yields to clients", c.RepairRate)
	}
	if c.RepairRate > 1<<40 || c.ScrubRate > 1<<40 {
		refuse("--repair-rate %s, --scrub-rate %s: want at most 1 TiB a second", c.RepairRate, c.ScrubRate)
	}
	if c.PinIdle < duration(time.Second) {
		refuse("--pin-idle %s: want 1s or more: a transfer pauses now and then", c.PinIdle)
	}
	if hclog.LevelFromString(c.LogLevel) == hclog.NoLevel {
		refuse("--log-level %q: want trace, debug, info, warn or error", c.LogLevel)
	}
	if c.HealAfter < duration(time.Second) || c.NodeTimeout < duration(500*time.Millisecond) || c.DiskStallLimit < duration(time.Second) {
		refuse("--heal-after %s, --node-timeout %s, --disk-stall-limit %s: want at least 1s, 500ms, 1s", c.HealAfter, c.NodeTimeout, c.DiskStallLimit)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		refuse("--log-format %q: want text or json", c.LogFormat)
	}
	if c.DefaultRanges < 1 || c.DefaultReplicas < 1 {
		refuse("--default-ranges %d, --default-replicas %d: want 1 or more", c.DefaultRanges, c.DefaultReplicas)
	}
	errs = append(errs, c.checkLeaseTimes()...)
	errs = append(errs, c.checkClientPort()...)
	return errors.Join(errs...)
}

func (c *config) checkLeaseTimes() (errs []error) {
	if c.RaftHeartbeat < duration(100*time.Millisecond) {
		errs = append(errs, fmt.Errorf("--raft-heartbeat %s: want 100ms or more", c.RaftHeartbeat))
	}
	// A Raft election takes up to three heartbeat times; a lease must outlive three of them.
	if c.LeaseTime < 9*c.RaftHeartbeat {
		errs = append(errs, fmt.Errorf("--lease-time %s is under nine times --raft-heartbeat %s: an election would end every lease", c.LeaseTime, c.RaftHeartbeat))
	}
	limits := group.DefaultLimits()
	if err := limits.CheckLease(time.Duration(c.LeaseTime)); err != nil {
		errs = append(errs, fmt.Errorf("--lease-time: %w", err))
	}
	return errs
}

func checkAddress(plane, bind, advertise string) error {
	host, port, err := net.SplitHostPort(bind)
	if err != nil {
		return fmt.Errorf("want HOST:PORT: %w", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q: want 1 to 65535", port)
	}
	if ip := net.ParseIP(host); advertise == "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		return fmt.Errorf("listens on every address, which tells others none: give --%s-advertise HOST:PORT", plane)
	}
	if advertise != "" {
		if _, _, err := net.SplitHostPort(advertise); err != nil {
			return fmt.Errorf("--%s-advertise %q: want HOST:PORT: %w", plane, advertise, err)
		}
	}
	return nil
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// readFile lays the file's settings over c. An unknown name is an error that carries its line.
func (c *config) readFile(path string) error {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	err = toml.NewDecoder(f).DisallowUnknownFields().Decode(c)
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) {
		return fmt.Errorf("--config %s: unknown setting; the names are those of the flags:\n%s", path, strict.String())
	}
	if err != nil {
		return fmt.Errorf("--config %s: %w", path, err)
	}
	return nil
}

// duration is a time.Duration written as people write it ("10s") in flags, environment and file.
type duration time.Duration

func (d duration) String() string { return time.Duration(d).String() }

// Set implements pflag.Value.
func (d *duration) Set(s string) error { return d.UnmarshalText([]byte(s)) }

// Type implements pflag.Value.
func (duration) Type() string { return "duration" }

// UnmarshalText reads the form of time.ParseDuration.
func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("duration %q: want a form like 500ms, 10s or 2m", b)
	}
	*d = duration(v)
	return nil
}

// size is a number of bytes written as people write it ("1GiB"). 0 leaves the choice to vtopd.
type size uint64

// String gives a form that is read back as the same number.
func (s size) String() string {
	text := humanize.IBytes(uint64(s))
	if v, err := humanize.ParseBytes(text); err != nil || v != uint64(s) {
		return strconv.FormatUint(uint64(s), 10)
	}
	return text
}

// Set implements pflag.Value.
func (s *size) Set(text string) error { return s.UnmarshalText([]byte(text)) }

// Type implements pflag.Value.
func (size) Type() string { return "size" }

// UnmarshalText reads the forms of go-humanize.
func (s *size) UnmarshalText(b []byte) error {
	v, err := humanize.ParseBytes(string(b))
	if err != nil {
		return fmt.Errorf("size %q: want a form like 512MiB or 2GB", b)
	}
	*s = size(v)
	return nil
}
