package main

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/manifest"
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
		},
		Setup: func(env *testscript.Env) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			env.Setenv("NOBODY", l.Addr().String()) // a port that refuses connections
			return l.Close()
		},
	})
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
