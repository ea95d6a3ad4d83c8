package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// A node that has just started accepts connections and knows nothing yet: the next endpoint is asked.
func TestClient_PassesOverNodesThatAreNotReady(t *testing.T) {
	node := func(ready bool) (addr string, asked *[]string) {
		asked = new([]string)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			*asked = append(*asked, r.URL.Path)
			if ready {
				fmt.Fprint(w, "[]")
				return
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, `{"error":{"code":%q,"message":"catching up"}}`, adminapi.CodeNotReady)
		}))
		t.Cleanup(srv.Close)
		return strings.TrimPrefix(srv.URL, "http://"), asked
	}
	late, _ := node(false)
	ready, asked := node(true)
	unasked, never := node(true)
	c, err := (&options{endpoint: strings.Join([]string{late, ready, unasked}, ",")}).client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Nodes(t.Context()); err != nil || len(*asked) != 2 || len(*never) != 0 {
		t.Errorf("%v; the ready node was asked %v, the one behind it %v", err, *asked, *never)
	}
}

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
