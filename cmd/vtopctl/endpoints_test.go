package main

import (
	"slices"
	"testing"
)

func TestEndpoints_PortIsTheDefaultIfThereIsNone(t *testing.T) {
	for given, want := range map[string][]string{
		"127.0.0.1":               {"127.0.0.1:9642"},
		"n1,n2:1, n3 ,,n1:9642":   {"n1:9642", "n2:1", "n3:9642"},
		"::1":                     {"[::1]:9642"},
		"[fd00::1]":               {"[fd00::1]:9642"},
		"[fd00::1]:17,fe80::1%lo": {"[fd00::1]:17", "[fe80::1%lo]:9642"},
	} {
		if got, err := (&options{endpoint: given}).endpoints(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q %v, want %q", given, got, err, want)
		}
	}
	if _, err := (&options{endpoint: " ,"}).endpoints(); exitCode(err) != exitUsage {
		t.Errorf("no endpoint: %v", err)
	}
}
