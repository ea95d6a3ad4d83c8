package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/drill"
)

// drillFlags are those of every drill.
type drillFlags struct {
	cfg      drill.Config
	html     string
	kafkaTLS struct{ ca, cert, key string }
}

const drillHelp = `Breaks the cluster on purpose, under load, one blow after the other, and says whether its promises held. It writes to a topic
of its own, which it makes and deletes, reads as the records come, and in the end reads everything back and checks:

  K1  every acknowledged record is at the offset it was acknowledged at
  K2  an offset has one value, for all readers and for ever
  K3  ends and starts that a client saw never go back
  K4  the idempotent producer's records are there once and in order
  K5  below the floor every replica is whole, byte by byte (seal and scrub)
  K6  one holder for each epoch, and epochs rise

A blow falls only when every replica of the topic votes and follows, and, if it takes a node away, when node safe-to-stop says yes. There is never
more than one fault at a time, unless --at-once says so. Ctrl-C lets no other blow fall, heals, checks and reports.

leader-kill, leader-pause, node-restart and wipe-replica need nodes that were started with --allow-drills (vtopd dev does so); they are refused otherwise.

Exit codes: 0 blows fell and all checks held, 1 a check failed (the topic is kept then) or the cluster did not heal, 2 wrong usage or no answer,
3 refused, 130 interrupted: healed, and what was checked held.`

func drillCommand(o *options) *cobra.Command {
	var f drillFlags
	cmd := &cobra.Command{Use: "drill", Short: "Break the cluster on purpose, and see whether its promises hold", Long: drillHelp}
	for _, kind := range drill.Kinds() {
		long := "Drill: " + drill.About(kind) + ".\n\n" + drillHelp
		cmd.AddCommand(&cobra.Command{
			Use: kind, Short: strings.ToUpper(drill.About(kind)[:1]) + drill.About(kind)[1:], Long: long,
			Example: fmt.Sprintf("  vtopctl drill %[1]s\n  vtopctl drill %[1]s --duration 10m --interval 30s --html report.html", kind),
			Args:    cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				f.cfg.Kind = kind
				return o.drill(cmd, &f)
			},
		})
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.cfg.Topic, "topic", "", "work on this topic, which gets the drill's records and keeps them (default: one of the drill's own)")
	flags.BoolVar(&f.cfg.Keep, "keep", false, "keep the drill's own topic")
	flags.DurationVar(&f.cfg.Duration, "duration", 0, "blows fall for this long (default 2m)")
	flags.DurationVar(&f.cfg.Interval, "interval", 0, "least time from one blow to the next (default 10s)")
	flags.DurationVar(&f.cfg.Pause, "pause", 0, "how long leader-pause stops a node (default 5s)")
	flags.DurationVar(&f.cfg.Patience, "patience", 0, "how long the cluster may take to be whole again, or safe for the next blow (default 2m)")
	flags.IntVar(&f.cfg.AtOnce, "at-once", 0, "strike so many at once; only the first is asked whether it is safe to stop (default 1)")
	flags.IntVar(&f.cfg.Ranges, "ranges", 0, "ranges of the drill's own topic (default 3)")
	flags.IntVar(&f.cfg.Replicas, "replicas", 0, "replicas of the drill's own topic (default 3, fewer where there are fewer nodes)")
	flags.IntVar(&f.cfg.PerSecond, "rate", 0, "records written in a second (default 500)")
	flags.IntVar(&f.cfg.Size, "record-size", 0, "bytes of a record (default 256)")
	flags.StringVar(&f.html, "html", "", "write the report with its timeline to this file, one page that needs nothing else")
	flags.StringSliceVar(&f.cfg.Bootstrap, "bootstrap", nil, "Kafka addresses (default: those that the nodes advertise)")
	flags.StringVar(&f.kafkaTLS.ca, "kafka-tls-ca", "", "the Kafka ports speak TLS: certificates of the authority that they are checked against")
	flags.StringVar(&f.kafkaTLS.cert, "kafka-tls-cert", "", "client certificate for the Kafka ports")
	flags.StringVar(&f.kafkaTLS.key, "kafka-tls-key", "", "key of --kafka-tls-cert")
	return cmd
}

func (o *options) drill(cmd *cobra.Command, f *drillFlags) error {
	if err := f.cfg.Check(); err != nil {
		return usagef("%w", err)
	}
	if err := f.kafkaOptions(); err != nil {
		return err
	}
	page, err := openPage(f.html)
	if err != nil {
		return err
	}
	defer page.discard()
	fl, err := o.fleet()
	if err != nil {
		return err
	}
	fl.learn(cmd.Context())
	show := o.drillProgress(cmd)
	f.cfg.Progress = show
	report, err := drill.Run(cmd.Context(), f.cfg, &drillAdmin{fleet: fl})
	show.close()
	if err != nil {
		if cmd.Context().Err() != nil {
			return &exitError{exitInterrupted, fmt.Errorf("interrupted before the first blow: %w", err)}
		}
		return notStarted(err)
	}
	err = errors.Join(o.print(cmd, report, report.Draw), page.write(report))
	switch {
	case !report.Held() && !(report.Interrupted && onlyUnstruck(report)):
		return errors.Join(&exitError{exitFailed, errors.New(report.Verdict())}, err)
	case report.Interrupted:
		return errors.Join(&exitError{exitInterrupted, errors.New("interrupted; healed, and every check held")}, err)
	case err != nil:
		return &exitError{exitFailed, err}
	}
	return nil
}

// onlyUnstruck reports whether all that is missing is a blow.
func onlyUnstruck(r *drill.Report) bool {
	with := *r
	with.Blows = append(with.Blows[:len(with.Blows):len(with.Blows)], drill.Blow{})
	return with.Held()
}

// kafkaOptions adds what the Kafka ports want.
func (f *drillFlags) kafkaOptions() error {
	t := f.kafkaTLS
	if t.ca == "" && t.cert == "" && t.key == "" {
		return nil
	}
	if t.ca == "" || (t.cert == "") != (t.key == "") {
		return usagef("--kafka-tls-ca is needed, and --kafka-tls-cert and --kafka-tls-key go together")
	}
	pem, err := os.ReadFile(filepath.Clean(t.ca))
	if err != nil {
		return usagef("--kafka-tls-ca: %w", err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return usagef("--kafka-tls-ca %s: no certificate in it", t.ca)
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return usagef("--kafka-tls-cert: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	f.cfg.Client = append(f.cfg.Client, kgo.DialTLSConfig(cfg))
	return nil
}

// pageFile is where the page goes: opened before the drill, so that a name that cannot be written is known before
// anything is broken, and given its name once it is whole.
type pageFile struct {
	name string
	file *os.File
}

func openPage(name string) (*pageFile, error) {
	if name == "" {
		return &pageFile{}, nil
	}
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return nil, usagef("--html %s: %w", name, err)
	}
	return &pageFile{name: name, file: file}, nil
}

func (p *pageFile) write(r *drill.Report) error {
	if p.file == nil {
		return nil
	}
	err := errors.Join(r.HTML(p.file), p.file.Chmod(0o644), p.file.Close())
	if err == nil {
		err = os.Rename(p.file.Name(), p.name)
	}
	if err != nil {
		return fmt.Errorf("--html %s: %w", p.name, err)
	}
	p.file = nil
	return nil
}

func (p *pageFile) discard() {
	if p.file != nil {
		_ = p.file.Close()
		_ = os.Remove(p.file.Name())
	}
}

// drillShow is the progress of a drill.
type drillShow interface {
	drill.Progress
	close()
}

// drillProgress chooses as progress does: one line that moves on a terminal, lines elsewhere, nothing beside JSON unless
// standard error is a terminal.
func (o *options) drillProgress(cmd *cobra.Command) drillShow {
	out := cmd.OutOrStdout()
	if o.output == "json" {
		if out = cmd.ErrOrStderr(); !terminal(out) {
			return &drillLines{out: io.Discard}
		}
	}
	return &drillLines{out: out, live: terminal(out)}
}

var _ drill.Admin = (*drillAdmin)(nil)
