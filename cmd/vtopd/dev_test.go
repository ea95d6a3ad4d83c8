package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Wrong words and numbers end with the code upon which no supervisor starts again.
func TestCommands_WrongUsageIsFinal(t *testing.T) {
	three := t.TempDir()
	for _, n := range []string{"n1", "n2", "n3"} {
		if err := os.MkdirAll(filepath.Join(three, n, "store"), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"nonsense", "nonsense"},
		{"dev nonsense", "nonsense"},
		{"--nonsense", "--nonsense"},
		{"dev --nonsense", "--nonsense"},
		{"dev --nodes 0", "want 1 to 9"},
		{"dev --nodes 10", "want 1 to 9"},
		{"dev --nodes 1 --data-dir " + three, "--nodes 3"},
	} {
		cmd := rootCommand()
		cmd.SetArgs(strings.Fields(c.args))
		err := cmd.ExecuteContext(t.Context())
		if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("vtopd %s: %v, want a usage error that says %q", c.args, err, c.want)
		}
	}
}

// A node whose directory cannot be made never runs; dev says so instead of trying for ever.
func TestDev_WhatCannotStartEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vtop-data")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nodes, err := devNodes(file, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := stopAtRestart{cancel: cancel}
	err = nodes[0].supervise(ctx, &out, "/nonexistent", nodes)
	if out.Len() > 0 || err == nil || !strings.Contains(err.Error(), "n1 cannot be started") {
		t.Errorf("supervise ended with %v and said %q, want that n1 cannot be started", err, out.String())
	}
}

// stopAtRestart ends the supervision when it announces another start, which would go on for ever.
type stopAtRestart struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (s *stopAtRestart) Write(p []byte) (int, error) {
	s.cancel()
	return s.Buffer.Write(p)
}
