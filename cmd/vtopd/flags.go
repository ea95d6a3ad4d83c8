package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// bindFlags ties every flag to its setting. --kafka-addr-advertise and its like are taken for --kafka-advertise.
func bindFlags(f *pflag.FlagSet, c *config) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.Replace(name, "-addr-advertise", "-advertise", 1))
	})
	f.String("config", "", "file with settings (TOML; its names are those of these flags)")
	f.StringVar(&c.NodeID, "node-id", c.NodeID, "name of this node, unique in the cluster")
	f.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory of this node's data; one node a directory")
	f.StringVar(&c.Rack, "rack", c.Rack, "failure domain of this node; replicas are spread over racks")
	f.StringVar(&c.KafkaAddr, "kafka-addr", c.KafkaAddr, "listen here for Kafka clients")
	f.StringVar(&c.KafkaAdvertise, "kafka-advertise", c.KafkaAdvertise, "address told to Kafka clients (default: --kafka-addr)")
	f.StringVar(&c.PeerAddr, "peer-addr", c.PeerAddr, "listen here for other nodes")
	f.StringVar(&c.PeerAdvertise, "peer-advertise", c.PeerAdvertise, "address told to other nodes (default: --peer-addr)")
	f.StringVar(&c.GossipAddr, "gossip-addr", c.GossipAddr, "listen here for gossip, TCP and UDP")
	f.StringVar(&c.GossipAdvertise, "gossip-advertise", c.GossipAdvertise, "gossip address told to other nodes (default: --gossip-addr)")
	f.StringVar(&c.AdminAddr, "admin-addr", c.AdminAddr, "listen here for vtopctl, health and metrics")
	f.StringVar(&c.AdminAdvertise, "admin-advertise", c.AdminAdvertise, "admin address told to other nodes (default: --admin-addr)")
	f.StringSliceVar(&c.Join, "join", c.Join, "peer addresses of the founding nodes, the same list on every machine")
	f.IntVar(&c.BootstrapExpect, "bootstrap-expect", c.BootstrapExpect, "number of empty nodes that found the cluster together")
	f.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "certificate of this node (peer and admin planes become mutual TLS)")
	f.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "key of --tls-cert")
	f.StringVar(&c.TLSCA, "tls-ca", c.TLSCA, "certificate of the cluster's CA")
	f.StringVar(&c.KafkaTLSCert, "kafka-tls-cert", c.KafkaTLSCert, "certificate of the port for Kafka clients, with the intermediate ones (the port becomes TLS)")
	f.StringVar(&c.KafkaTLSKey, "kafka-tls-key", c.KafkaTLSKey, "key of --kafka-tls-cert")
	f.StringVar(&c.KafkaTLSCA, "kafka-tls-ca", c.KafkaTLSCA, "certificates of the authorities whose client certificates are taken")
	f.StringVar(&c.KafkaClientAuth, "kafka-client-auth", c.KafkaClientAuth, "certificates of Kafka clients: none, request (verified if there is one) or require")
	f.StringVar(&c.GossipKey, "gossip-key", c.GossipKey, "base64 of 16, 24 or 32 bytes that encrypt gossip, the same on every machine")
	f.BoolVar(&c.AllowPlaintext, "allow-plaintext", c.AllowPlaintext, "allow peer and admin planes without TLS beyond loopback")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "trace, debug, info, warn or error")
	f.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text or json")
	f.Var(&c.LeaseTime, "lease-time", "a holder that hears no verified Raft leader for this long stops serving")
	f.Var(&c.NodeTimeout, "node-timeout", "a node that is silent for this long loses its leases")
	f.Var(&c.RaftHeartbeat, "raft-heartbeat", "Raft heartbeat and election timeout")
	f.Var(&c.HealAfter, "heal-after", "a node gone for this long is given up; a claimant of its name takes its place")
	f.Var(&c.DiskStallLimit, "disk-stall-limit", "a disk that hangs for this long ends the process, with exit code 5")
	f.Var(&c.DiskReserve, "disk-reserve", "stop taking writes below this much free space (0: the lesser of 1 GiB and 5 %, at least 64 MiB)")
	f.StringSliceVar(&c.TransferAllow, "transfer-allow", c.TransferAllow, "names of the nodes that may seal and copy segments from this one (default: all nodes of the cluster)")
	f.Var(&c.RepairRate, "repair-rate", "limit in bytes a second of each repair that the cluster starts by itself (0: a budget that yields to clients)")
	f.Var(&c.ScrubRate, "scrub-rate", "read sealed segments in the background at this many bytes a second, to find what has rotted (0: never)")
	f.Var(&c.PinIdle, "pin-idle", "segments that a repair was promised and does not read for this long are let go")
	f.BoolVar(&c.AutoCreateTopics, "auto-create-topics", c.AutoCreateTopics, "create a topic when a client first asks for it")
	f.Int32Var(&c.DefaultRanges, "default-ranges", c.DefaultRanges, "ranges of a topic created without a number")
	f.Var(&c.OffsetsRetention, "offsets-retention", "committed offsets of a group without members are kept for this long (below 0: for ever)")
	f.BoolVar(&c.AllowDrills, "allow-drills", c.AllowDrills, "let vtopctl drill kill, pause and restart this process and wipe a replica of it")
	f.BoolVar(&c.Supervised, "supervised", c.Supervised, "something starts this process again when it ends (systemd is known without); else a drill has it start its own successor")
	f.IntVar(&c.MaxConnections, "kafka-max-connections", c.MaxConnections, "connections of Kafka clients; more are closed at once")
	f.IntVar(&c.MaxConnectionsPerIP, "kafka-max-connections-per-ip", c.MaxConnectionsPerIP, "the same for each address (0: no limit)")
	f.Var(&c.MaxRequest, "kafka-max-request", "largest Produce request; a larger one ends its connection")
	f.Var(&c.RequestMemory, "kafka-request-memory", "memory for requests of all clients together; beyond it their sockets are not read")
	f.Var(&c.ResponseMemory, "kafka-response-memory", "memory for records on their way to clients; beyond it fetches wait")
	f.Var(&c.ProduceQuota, "produce-quota", "bytes a second that a client id may send to this node, where the cluster has no quota for it (0: no limit)")
	f.Var(&c.FetchQuota, "fetch-quota", "bytes a second that a client id may take from this node, where the cluster has no quota for it (0: no limit)")
	f.Int16Var(&c.DefaultReplicas, "default-replicas", c.DefaultReplicas, "replicas of a topic created without a number; fewer where there are fewer nodes")
}

// load settles c, which the flags of f are bound to and have been parsed into: defaults, then the file, then the
// environment, then the flags that were given.
func load(f *pflag.FlagSet, c *config, environ func(string) (string, bool)) error {
	given := map[string]string{}
	f.Visit(func(fl *pflag.Flag) { given[fl.Name] = flagText(fl) })
	path := given["config"]
	if path == "" {
		path, _ = environ("VTOP_CONFIG")
	}
	*c = defaults()
	if path != "" {
		if err := c.readFile(path); err != nil {
			return err
		}
	}
	var err error
	f.VisitAll(func(fl *pflag.Flag) {
		text, ok := given[fl.Name]
		source := "--" + fl.Name
		if !ok {
			source = "VTOP_" + strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_"))
			text, ok = environ(source)
		}
		if !ok || err != nil || fl.Name == "config" {
			return
		}
		if e := setFlag(fl, text); e != nil {
			err = fmt.Errorf("%s: %w", source, e)
		}
	})
	if err != nil {
		return err
	}
	return c.validate()
}

func flagText(fl *pflag.Flag) string {
	if list, ok := fl.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return fl.Value.String()
}

func setFlag(fl *pflag.Flag, text string) error {
	if list, ok := fl.Value.(pflag.SliceValue); ok {
		var items []string
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return list.Replace(items)
	}
	return fl.Value.Set(text)
}

func environment(name string) (string, bool) { return os.LookupEnv(name) }
