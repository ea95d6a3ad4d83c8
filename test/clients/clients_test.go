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
			res.add(result{Client: c.name, Feature: f.name, Outcome: notRun, Detail: err.Error()})
			if os.Getenv("VTOP_CLIENTS_STRICT") != "" {
				t.Fatal(err)
			}
			t.Skipf("did not run: %v", err)
		}
		topic := func() string { return fmt.Sprintf("%s-%03d", name, run.Add(1)) }
		judge(res, c, f, func() *cell { return &cell{t: t, target: open(t, lane), client: c, topic: topic()} })
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

// judge runs a client at a feature and keeps what came out. What fails is run once more, with another topic: the machine may be
// shared. The page names what passed only then.
func judge(res *results, c *client, f feature, open func() *cell) {
	x := open()
	err := x.try(f)
	out := result{Client: c.name, Feature: f.name}
	var none unsupported
	var absent notHere
	why := ""
	if err != nil && !errors.As(err, &none) && !errors.As(err, &absent) {
		why = explained(res.server, c.name, f.name, err.Error())
		if why == "" {
			x.t.Logf("FAILED ONCE: %v", err)
			out.Once = err.Error()
			err = open().try(f)
		}
	}
	out.Version = c.version
	switch {
	case err == nil:
		out.Outcome = ok
		res.add(out)
	case errors.As(err, &none):
		out.Outcome, out.Detail = lacks, string(none)
		res.add(out)
		x.t.Skipf("the library doesn't have it: %s", string(none))
	case errors.As(err, &absent):
		out.Outcome, out.Detail = notRun, string(absent)
		res.add(out)
		x.t.Skipf("the server can't show it: %s", string(absent))
	default:
		out.Outcome, out.Detail = failed, err.Error()
		res.add(out)
		if why != "" {
			x.t.Skipf("explained: %s: %v", why, err)
		}
		x.t.Error(err)
	}
}

// try runs the feature with a client of the driver's own beside it.
func (x *cell) try(f feature) error {
	cl, err := x.open()
	if err != nil {
		return err
	}
	defer cl.Close()
	x.kgo, x.admin = cl, kadm.NewClient(cl)
	return f.run(x)
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
