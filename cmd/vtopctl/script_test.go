package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/transport/adminapi"
	"github.com/vtop-log/vtop/transport/tlsid"
	"github.com/vtop-log/vtop/transport/transporttest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vtopctl": main})
}

// The scripts are the tool as a person meets it: what it says, and with which exit code.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":       cmdExits,
			"makesegment": cmdMakeSegment,
			"flipbit":     cmdFlipBit,
			"json":        cmdJSON,
			"interrupt":   cmdInterrupt,
			"killnodes":   cmdKillNodes,
			"tlsnode":     cmdTLSNode,
			"ready":       cmdReady,
		},
		Setup: func(env *testscript.Env) error {
			nobody, free, err := transporttest.Refuse()
			if err != nil {
				return err
			}
			env.Defer(free)
			env.Setenv("NOBODY", nobody)
			f, err := startFakeCluster()
			if err != nil {
				return err
			}
			env.Defer(f.stop)
			env.Values[clusterKey{}] = f
			env.Setenv("N1", f.addrs[0])
			env.Setenv("N2", f.addrs[1])
			return nil
		},
	})
}

type clusterKey struct{}

// json object|list NAME... wants standard output to be one JSON value that has these names.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: json object|list NAME...")
	}
	var objects []map[string]any
	var err error
	out := ts.ReadFile("stdout")
	if args[0] == "list" {
		err = json.Unmarshal([]byte(out), &objects)
	} else {
		objects = append(objects, nil)
		err = json.Unmarshal([]byte(out), &objects[0])
	}
	if err != nil || objects == nil {
		ts.Fatalf("no JSON %s: %v", args[0], err)
	}
	for _, o := range objects {
		for _, name := range args[1:] {
			if _, ok := o[name]; !ok {
				ts.Fatalf("no %q in %v", name, o)
			}
		}
	}
}

// interrupt vtopctl ARGS... runs the tool until it waits for a job, and sends it what Ctrl-C sends.
func cmdInterrupt(ts *testscript.TestScript, _ bool, args []string) {
	f := ts.Value(clusterKey{}).(*fakeCluster)
	bin, err := exec.LookPath(args[0])
	ts.Check(err)
	cmd := exec.Command(bin, args[1:]...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	before := f.lookedAt()
	ts.Check(cmd.Start())
	for f.lookedAt() < before+2 {
		time.Sleep(10 * time.Millisecond)
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // the exit code is looked at below
	fmt.Fprint(ts.Stdout(), stdout.String())
	fmt.Fprint(ts.Stderr(), stderr.String())
	if got := cmd.ProcessState.ExitCode(); got != exitInterrupted {
		ts.Fatalf("exit code %d, want %d: %s", got, exitInterrupted, stderr.String())
	}
}

// killnodes ends both nodes once somebody waits for a job.
func cmdKillNodes(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Value(clusterKey{}).(*fakeCluster).killWhenLookedAt()
}

// ready has node n1 be as it should be.
func cmdReady(ts *testscript.TestScript, _ bool, _ []string) {
	f := ts.Value(clusterKey{}).(*fakeCluster)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = true
}

// tlsnode DIR NAME starts a node that speaks TLS with the certificate NAME of vtopctl cert, and sets $TLS to its address.
func cmdTLSNode(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	id, err := tlsid.Load(tlsid.Files{Cert: filepath.Join(dir, args[1]+".crt"), Key: filepath.Join(dir, args[1]+".key"), CA: filepath.Join(dir, "ca.crt")})
	ts.Check(err)
	f := ts.Value(clusterKey{}).(*fakeCluster)
	l, err := adminapi.Listen("127.0.0.1:0", id, adminapi.NewServer(&fakeNode{f, 0}, adminapi.Hooks{}), log.New(io.Discard, "", 0))
	ts.Check(err)
	ts.Defer(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = l.Close(ctx)
	})
	ts.Setenv("TLS", l.Addr().String())
}

// exits CODE vtopctl ARGS... runs the tool and wants that exit code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		var exit interface{ ExitCode() int }
		if e, ok := err.(interface{ ExitCode() int }); ok {
			exit = e
		} else {
			ts.Fatalf("%v", err)
		}
		got = fmt.Sprint(exit.ExitCode())
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// makesegment FILE writes a segment of three batches with its manifest beside it.
func cmdMakeSegment(ts *testscript.TestScript, _ bool, args []string) {
	var data []byte
	for i := range 3 {
		data = append(data, batch.Build(batch.Spec{Base: vtop.Offset(i), Epoch: 1, Records: []batch.Record{{Value: []byte("a record")}}})...)
	}
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path+manifest.LogSuffix, data, 0o600))
	f, err := os.Open(path + manifest.LogSuffix)
	ts.Check(err)
	defer f.Close()
	m, err := manifest.Compute(f, int64(len(data)), 0, nil)
	ts.Check(err)
	ts.Check(os.WriteFile(path+manifest.ManifestSuffix, m.Encode(), 0o600))
}

// flipbit FILE changes one bit in the middle of a file.
func cmdFlipBit(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	b[len(b)/2] ^= 4
	ts.Check(os.WriteFile(path, b, 0o600))
}
