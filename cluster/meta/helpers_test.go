package meta

import (
	"os"
	"strings"
	"testing"

	"github.com/vtop-log/vtop/transport"
)

func contains(s, sub string) bool { return strings.Contains(s, sub) }

func target(addr string) transport.Target { return transport.Target{Addr: addr} }

func removeAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}
