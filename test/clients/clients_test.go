//go:build cluster

package clients

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/vtop-log/vtop/test/harness"
)

// Every client at every feature, against three vtopd processes.
func TestClients_Vtop(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: []string{"--log-level", "info"}})
	matrix(t, "vtop", func(*testing.T) target { return vtop{c} })
}

// matrix runs all clients at all features, each against the server that open gives, and keeps the results: one by one,
// and at the end together what only waits. VTOP_CLIENTS and VTOP_FEATURES, regular expressions, choose some; then nothing
// is kept.
func matrix(t *testing.T, name string, open func(t *testing.T) target) {
	clients, features := chosen(t)
	run := 0
	res := newResults(name)
	var together []func(t *testing.T)
	for _, c := range clients {
		prepared := c.prepare(c)
		for _, f := range features {
			run++
			topic := fmt.Sprintf("%s-%03d", name, run)
			one := func(t *testing.T) {
				if prepared != nil {
					res.add(c, f, notRun, prepared.Error())
					t.Skipf("did not run: %v", prepared)
				}
				x := &cell{t: t, target: open(t), client: c, topic: topic}
				x.judge(f, res)
			}
			if !f.waits {
				t.Run(c.name+"/"+f.name, one)
				continue
			}
			together = append(together, func(t *testing.T) {
				t.Run(c.name+"/"+f.name, func(t *testing.T) { t.Parallel(); one(t) })
			})
		}
	}
	t.Run("together", func(t *testing.T) {
		for _, start := range together {
			start(t)
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
		if why := res.known(x.client, f); why != "" {
			x.t.Skipf("known: %s: %v", why, err)
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
