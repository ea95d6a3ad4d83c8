package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func loadArgs(t *testing.T, env map[string]string, args ...string) (config, error) {
	t.Helper()
	c := defaults()
	f := pflag.NewFlagSet("vtopd", pflag.ContinueOnError)
	bindFlags(f, &c)
	if err := f.Parse(args); err != nil {
		return c, err
	}
	err := load(f, &c, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	return c, err
}

func TestLoad_FlagsOverEnvironmentOverFileOverDefaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vtopd.toml")
	text := "node-id = \"file\"\nrack = \"file\"\nlease-time = \"20s\"\njoin = [\"f:1\"]\ndisk-reserve = \"2GiB\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"VTOP_RACK": "env", "VTOP_NODE_ID": "env", "VTOP_JOIN": "a:1, b:2", "VTOP_CONFIG": file}
	c, err := loadArgs(t, env, "--node-id", "flag")
	if err != nil {
		t.Fatal(err)
	}
	if c.NodeID != "flag" || c.Rack != "env" || c.LeaseTime != duration(20*time.Second) || c.DiskReserve != 2<<30 || c.KafkaAddr != "127.0.0.1:9092" {
		t.Fatalf("got %+v", c)
	}
	if !slices.Equal(c.Join, []string{"a:1", "b:2"}) {
		t.Fatalf("join %q", c.Join)
	}
}

func TestLoad_FlagListReplacesTheFileList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vtopd.toml")
	if err := os.WriteFile(file, []byte("join = [\"f:1\", \"f:2\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadArgs(t, nil, "--config", file, "--join", "x:1", "--join", "y:2,z:3")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Join, []string{"x:1", "y:2", "z:3"}) {
		t.Fatalf("join %q", c.Join)
	}
}

func TestLoad_BothAdvertiseSpellings(t *testing.T) {
	c, err := loadArgs(t, nil, "--kafka-addr-advertise", "h:1", "--peer-advertise", "h:2")
	if err != nil || c.KafkaAdvertise != "h:1" || c.PeerAdvertise != "h:2" {
		t.Fatalf("%+v, %v", c, err)
	}
}

func TestLoad_RefusalsSayWhatToDo(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("node-id = \"a\"\nracks = \"b\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"an unknown setting carries its line":           {[]string{"--config", bad}, nil, "racks"},
		"a missing file":                                {[]string{"--config", bad + "x"}, nil, "no such file"},
		"half a client port's TLS":                      {[]string{"--kafka-tls-cert", "x"}, nil, "go together"},
		"client certificates without TLS":               {[]string{"--kafka-client-auth", "require"}, nil, "needs TLS"},
		"client certificates of nobody":                 {[]string{"--kafka-tls-cert", "x", "--kafka-tls-key", "x", "--kafka-client-auth", "request"}, nil, "needs --kafka-tls-ca"},
		"authorities for nobody":                        {[]string{"--kafka-tls-cert", "x", "--kafka-tls-key", "x", "--kafka-tls-ca", "x"}, nil, "add --kafka-client-auth"},
		"an unknown word for client certificates":       {[]string{"--kafka-client-auth", "maybe"}, nil, "none, request or require"},
		"requests that never fit":                       {[]string{"--kafka-max-request", "200MiB"}, nil, "--kafka-request-memory"},
		"offsets that are not kept at all":              {[]string{"--offsets-retention", "0s"}, nil, "--offsets-retention"},
		"no connections":                                {[]string{"--kafka-max-connections", "0"}, nil, "--kafka-max-connections"},
		"a quota beyond all measure":                    {[]string{"--produce-quota", "10EB"}, nil, "--produce-quota"},
		"half a TLS identity":                           {[]string{"--tls-cert", "x"}, nil, "go together"},
		"plaintext beyond loopback":                     {[]string{"--peer-addr", "10.0.0.1:9640"}, nil, "--allow-plaintext"},
		"every address without an advertised one":       {[]string{"--kafka-addr", "0.0.0.0:9092"}, nil, "give --kafka-advertise"},
		"founders without addresses":                    {[]string{"--bootstrap-expect", "3"}, nil, "--join"},
		"a lease that an election outlives":             {[]string{"--lease-time", "3s"}, nil, "nine times"},
		"a lease that outlives sessions of groups":      {[]string{"--lease-time", "46s"}, nil, "the 45s session of consumer groups"},
		"a duration that is none, from the environment": {nil, map[string]string{"VTOP_LEASE_TIME": "soon"}, "VTOP_LEASE_TIME"},
		"a port that is missing":                        {[]string{"--admin-addr", "localhost"}, nil, "HOST:PORT"},
		"a gossip key of an odd length":                 {[]string{"--gossip-key", "c2hvcnQ="}, nil, "16, 24 or 32 bytes"},
		"a port that is none":                           {[]string{"--kafka-addr", "127.0.0.1:99999"}, nil, "65535"},
		"a level nobody logs at":                        {[]string{"--log-level", "loud"}, nil, "trace, debug"},
		"a name no certificate holds":                   {[]string{"--node-id", "a/b"}, nil, "certificate"},
		"healing before anyone looks":                   {[]string{"--heal-after", "1ms"}, nil, "--heal-after"},
		"a pin that any pause would end":                {[]string{"--pin-idle", "10ms"}, nil, "--pin-idle"},
		"a rate beyond any disk":                        {[]string{"--scrub-rate", "2TiB"}, nil, "--scrub-rate"},
		"an allowed node without a name":                {[]string{"--transfer-allow", strings.Repeat("n", 64)}, nil, "--transfer-allow"},
		"a log format nobody reads":                     {[]string{"--log-format", "xml"}, nil, "text or json"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadArgs(t, c.env, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want it to name %q", err, c.want)
			}
		})
	}
}

func TestLoad_SettingsOfRepair(t *testing.T) {
	c, err := loadArgs(t, map[string]string{"VTOP_TRANSFER_ALLOW": "n1, n2", "VTOP_SCRUB_RATE": "0"}, "--repair-rate", "50MB")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.TransferAllow, []string{"n1", "n2"}) || c.ScrubRate != 0 || c.RepairRate != 50_000_000 || c.PinIdle != duration(2*time.Minute) {
		t.Fatalf("got %+v", c)
	}
	if d := defaults(); d.ScrubRate == 0 || len(d.TransferAllow) != 0 || d.RepairRate != 0 {
		t.Fatalf("defaults %+v", d)
	}
}

func TestLoad_ClientPort(t *testing.T) {
	c, err := loadArgs(t, nil, "--kafka-max-connections", "10", "--kafka-max-connections-per-ip", "3", "--kafka-max-request", "16MiB",
		"--kafka-request-memory", "32MiB", "--kafka-response-memory", "16MiB", "--produce-quota", "1MiB", "--fetch-quota", "2MiB")
	if err != nil {
		t.Fatal(err)
	}
	k := c.kafkaConfig()
	if k.MaxConnections != 10 || k.MaxConnectionsPerIP != 3 || k.MaxProduceFrame != 16<<20 || k.RequestBytes != 32<<20 || k.ResponseBytes != 16<<20 ||
		k.ProduceQuota != 1<<20 || k.FetchQuota != 2<<20 || !k.AutoCreate {
		t.Errorf("%+v", k)
	}
	if set, err := c.loadKafkaTLS(); set != nil || err != nil {
		t.Errorf("TLS without a certificate: %v %v", set, err)
	}
}
