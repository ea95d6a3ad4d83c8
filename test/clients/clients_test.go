//go:build cluster

package clients

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/vtop-log/vtop/test/harness"
)

// lanes is how many clients are at work at once, each against a cluster of its own: most of a scenario is waiting.
const lanes = 2

// Every client at every feature, against three vtopd processes.
func TestClients_Vtop(t *testing.T) {
	var clusters []target
	for range lanes {
		clusters = append(clusters, vtop{harness.Start(t, harness.Options{Nodes: 3, Flags: []string{"--log-level", "info"}})})
	}
	matrix(t, "vtop", clusters, func(_ *testing.T, lane target) target { return lane })
}

// matrix runs all clients at all features and keeps the results. A client has a lane to itself, and goes through the features one
// by one, each against the server that open gives; what only waits runs at the end, together in the first lane. VTOP_CLIENTS and
// VTOP_FEATURES, regular expressions, choose some; then nothing is kept.
func matrix(t *testing.T, name string, free []target, open func(t *testing.T, lane target) target) {
	clients, features := chosen(t)
	first, pool := free[0], make(chan target, len(free))
	for _, lane := range free {
		pool <- lane
	}
	res := newResults(name)
	var run atomic.Int32
	one := func(t *testing.T, c *client, f feature, lane target) {
		if err := c.prepared(); err != nil {
			res.add(c, f, notRun, err.Error())
			if os.Getenv("VTOP_CLIENTS_STRICT") != "" {
				t.Fatal(err)
			}
			t.Skipf("did not run: %v", err)
		}
		x := &cell{t: t, target: open(t, lane), client: c, topic: fmt.Sprintf("%s-%03d", name, run.Add(1))}
		x.judge(f, res)
	}
	t.Run("alone", func(t *testing.T) {
		for _, c := range clients {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				lane := <-pool
				defer func() { pool <- lane }()
				for _, f := range features {
					if !f.waits {
						t.Run(f.name, func(t *testing.T) { one(t, c, f, lane) })
					}
				}
			})
		}
	})
	t.Run("together", func(t *testing.T) {
		for _, c := range clients {
			for _, f := range features {
				if f.waits {
					t.Run(c.name+"/"+f.name, func(t *testing.T) { t.Parallel(); one(t, c, f, first) })
				}
			}
		}
	})
	if err := res.keep(os.Getenv("VTOP_CLIENTS") == "" && os.Getenv("VTOP_FEATURES") == ""); err != nil {
		t.Error(err)
	}
}

// judge runs the feature and keeps what came out.
func (x *cell) judge(f feature, res *results) {
	cl, err := x.open()
	if err != nil {
		x.t.Fatal(err)
	}
	defer cl.Close()
	x.kgo, x.admin = cl, kadm.NewClient(cl)
	err = f.run(x)
	var none unsupported
	var absent notHere
	switch {
	case err == nil:
		res.add(x.client, f, ok, "")
	case errors.As(err, &none):
		res.add(x.client, f, lacks, string(none))
		x.t.Skipf("the library doesn't have it: %s", string(none))
	case errors.As(err, &absent):
		res.add(x.client, f, notRun, string(absent))
		x.t.Skipf("the server can't show it: %s", string(absent))
	default:
		res.add(x.client, f, failed, err.Error())
		if why := explained(res.server, x.client.name, f.name); why != "" {
			x.t.Skipf("explained: %s: %v", why, err)
		}
		x.t.Error(err)
	}
}

func chosen(t *testing.T) ([]*client, []feature) {
	t.Helper()
	wanted := func(env string) *regexp.Regexp { return regexp.MustCompile("(?i)" + os.Getenv(env)) }
	var clients []*client
	for _, c := range allClients() {
		if wanted("VTOP_CLIENTS").MatchString(c.name) {
			clients = append(clients, c)
		}
	}
	var features []feature
	for _, f := range allFeatures() {
		if wanted("VTOP_FEATURES").MatchString(strings.ToLower(f.name)) {
			features = append(features, f)
		}
	}
	if len(clients) == 0 || len(features) == 0 {
		t.Fatal("VTOP_CLIENTS and VTOP_FEATURES choose nothing")
	}
	return clients, features
}
