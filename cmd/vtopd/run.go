package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster"
	"github.com/vtop-log/vtop/cluster/inspect"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/kafka"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport/adminapi"
	"github.com/vtop-log/vtop/transport/tlsid"
)

// stopLimit bounds an orderly stop, so that the process ends within ten seconds.
const stopLimit = 9 * time.Second

// run builds the parts of one node in the order in which they need each other, waits for the signal, and closes
// them in reverse: clients first, so that nothing is admitted that could not be acknowledged.
func run(ctx context.Context, c config) error {
	log, flush := loggerTo(os.Stderr, c, time.Now)
	defer flush()
	var id *tlsid.Identity
	if c.TLSCert != "" {
		var err error
		if id, err = tlsid.Load(tlsid.Files{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCA}); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		if id.Name() != vtop.NodeName(c.NodeID) {
			return fmt.Errorf("%w: --tls-cert %s is for %q and --node-id is %q: issue one with 'vtopctl cert issue %s'", errUsage, c.TLSCert, id.Name(), c.NodeID, c.NodeID)
		}
	}
	kafkaTLS, err := c.loadKafkaTLS()
	if err != nil {
		return err
	}
	d := &daemon{cfg: c, log: log, tls: id, kafkaTLS: kafkaTLS, registry: prometheus.NewRegistry()}
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// The admin port opens first: while the disk fails it is the one that can say so.
	if err := d.openAdmin(); err != nil {
		return err
	}
	watch, endWatch := context.WithCancel(context.Background())
	defer endWatch()
	go d.watchCertificates(watch)
	err = d.serve(ctx)
	stop, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return errors.Join(err, d.close(stop))
}

// loggerTo makes the logger of the whole process; flush, at its end, writes what is kept back of repeated lines.
func loggerTo(out io.Writer, c config, now func() time.Time) (log hclog.Logger, flush func()) {
	sink := newCollapse(out, c.LogFormat == "json", now)
	return hclog.New(&hclog.LoggerOptions{
		Name: "vtopd", Level: hclog.LevelFromString(c.LogLevel), JSONFormat: c.LogFormat == "json", Output: sink,
		TimeFormat: "2006-01-02T15:04:05.000Z07:00", Exclude: newRepeats(now).exclude,
	}), sink.flush
}

// daemon is the process: the node and its two faces.
type daemon struct {
	cfg      config
	log      hclog.Logger
	tls      *tlsid.Identity
	kafkaTLS *kafka.TLS
	registry *prometheus.Registry

	admin   *adminapi.Listener
	face    *inspect.Face
	node    *cluster.Node
	kafka   atomic.Pointer[kafka.Server]
	serving chan error
}

func (d *daemon) openAdmin() error {
	if err := adminapi.CheckExposure(d.cfg.AdminAddr, d.tls, d.cfg.AllowPlaintext); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	d.face = inspect.New(d.tls, d.log)
	if d.tls != nil {
		d.face.Shows("peer and admin ports", d.tls)
		d.registry.MustRegister(inspect.CertificateMetrics(d.tls)...)
	}
	if d.kafkaTLS != nil {
		d.face.Shows("Kafka port", d.kafkaTLS)
	}
	if d.cfg.AllowDrills {
		drills := newDrills(d.cfg.Supervised, d.log)
		d.face.AllowDrills(drills)
		d.log.Warn("drills may kill, pause, restart and wipe this process (--allow-drills)", "returns-by", drills.ReturnsBy())
	}
	handler := adminapi.NewServer(d.face, adminapi.Hooks{
		Healthz: http.HandlerFunc(d.face.ServeHealthz),
		Readyz:  http.HandlerFunc(d.face.ServeReadyz),
		Metrics: promhttp.HandlerFor(d.registry, promhttp.HandlerOpts{}),
		Page:    profiles(),
	})
	var err error
	d.admin, err = adminapi.Listen(d.cfg.AdminAddr, d.tls, handler, d.log.Named("admin").StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true}))
	return err
}

// profiles serves Go's profiles under /debug/pprof/. The admin port is loopback or mutual TLS.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// serve proves the disk, starts the node and the client face, and returns when ctx ends or something fails for good.
func (d *daemon) serve(ctx context.Context) error {
	if err := d.awaitDisk(ctx); err != nil {
		return err
	}
	var err error
	if d.node, err = cluster.Start(d.nodeConfig()); err != nil {
		return err
	}
	d.face.Attach(d.node)
	if err := d.openKafka(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		d.log.Info("stopping: leases go to others first")
		return nil
	case err := <-d.node.Fatal():
		return err
	case err := <-d.serving:
		return fmt.Errorf("kafka port: %w", err)
	}
}

// awaitDisk writes and fsyncs a file in the data directory before anything else is done there. While that fails the
// node only answers on its admin port, says why, and tries again.
func (d *daemon) awaitDisk(ctx context.Context) error {
	prove := func() error {
		if err := os.MkdirAll(d.cfg.DataDir, 0o750); err != nil {
			return err
		}
		probe := filepath.Join(d.cfg.DataDir, "probe")
		return errors.Join(vfs.WriteFileAtomic(vfs.OS(), probe, []byte("vtop proves its disk\n")), os.Remove(probe))
	}
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := prove()
		if err == nil {
			return nil
		}
		d.face.SetStatus(fmt.Sprintf("data directory %s can't be written: %v", d.cfg.DataDir, err))
		d.log.Error("data directory can't be written and synced; waiting for the disk", "dir", d.cfg.DataDir, "error", err, "retry", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (d *daemon) nodeConfig() cluster.Config {
	c := d.cfg
	advertise := func(bind, told string) string {
		if told != "" {
			return told
		}
		return bind
	}
	return cluster.Config{
		Name: vtop.NodeName(c.NodeID), DataDir: c.DataDir, Rack: c.Rack, Version: version(),
		PeerBind: c.PeerAddr, GossipBind: c.GossipAddr,
		Advertise: fsm.Addresses{
			Kafka: advertise(c.KafkaAddr, c.KafkaAdvertise), Peer: advertise(c.PeerAddr, c.PeerAdvertise),
			Gossip: advertise(c.GossipAddr, c.GossipAdvertise), Admin: advertise(c.AdminAddr, c.AdminAdvertise),
		},
		Join: c.Join, BootstrapExpect: c.BootstrapExpect, TLS: d.tls, GossipKey: c.GossipKey,
		LeaseTime: time.Duration(c.LeaseTime), NodeTimeout: time.Duration(c.NodeTimeout), RaftHeartbeat: time.Duration(c.RaftHeartbeat),
		HealAfter: time.Duration(c.HealAfter), DiskStallLimit: time.Duration(c.DiskStallLimit), DiskReserve: uint64(c.DiskReserve),
		TransferAllow: nodeNames(c.TransferAllow), RepairRate: int64(c.RepairRate), ScrubRate: int64(c.ScrubRate), PinIdle: time.Duration(c.PinIdle),
		OnDiskStall:     d.endHung,
		OnFault:         endAtFault,
		DefaultReplicas: c.DefaultReplicas, DefaultRanges: c.DefaultRanges, OffsetRetention: time.Duration(c.OffsetsRetention),
		Log: d.log,
	}
}

func nodeNames(names []string) (out []vtop.NodeName) {
	for _, n := range names {
		out = append(out, vtop.NodeName(n))
	}
	return out
}

// endHung ends a process whose disk hangs. The node has cut its own connections by now; clients' and operators' go too.
func (d *daemon) endHung(time.Duration) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if s := d.kafka.Load(); s != nil {
		go func() { _ = s.Close(now) }()
	}
	go func() { _ = d.admin.Close(now) }()
	time.Sleep(300 * time.Millisecond) // what is not cut by then is left to the kernel
	os.Exit(exitDiskStall)
}

// endAtFault ends a process whose build does not understand what the cluster has committed.
func endAtFault(fault *fsm.Fault) {
	fmt.Fprintln(os.Stderr, "vtopd:", fault)
	os.Exit(exitUsage)
}

func (d *daemon) openKafka() error {
	metrics, err := kafka.NewMetrics(d.registry)
	if err != nil {
		return err
	}
	if err := d.registry.Register(inspect.NewCollector(d.node)); err != nil {
		return err
	}
	cfg := d.cfg.kafkaConfig()
	cfg.TLS = d.kafkaTLS
	server, err := kafka.New(cfg, kafka.OnCluster(d.node), metrics, d.log)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", d.cfg.KafkaAddr)
	if err != nil {
		return fmt.Errorf("kafka port: %w", err)
	}
	d.serving = make(chan error, 1)
	d.kafka.Store(server)
	go func() { d.serving <- server.Serve(l) }()
	d.log.Info("listening for Kafka clients", "addr", l.Addr(), "tls", d.kafkaTLS != nil, "client-auth", d.cfg.KafkaClientAuth)
	return nil
}

// close stops in reverse. The node hands its leases over while clients are still answered, so that they hear at once
// who leads now; then the client face goes, then the rest.
func (d *daemon) close(ctx context.Context) error {
	var errs []error
	if d.node != nil {
		d.node.HandOver(ctx)
	}
	if s := d.kafka.Load(); s != nil {
		errs = append(errs, s.Close(ctx))
	}
	if d.node != nil {
		errs = append(errs, d.node.Close(ctx))
	}
	errs = append(errs, d.admin.Close(ctx))
	return errors.Join(errs...)
}
