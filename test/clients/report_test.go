//go:build cluster

package clients

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// outcome is what stands in a cell.
type outcome string

const (
	ok     outcome = "ok"
	failed outcome = "failed"
	lacks  outcome = "lacks"  // the library doesn't have the feature
	notRun outcome = "notrun" // a runtime is missing, or the server can't show it
)

// result is one cell as it is kept.
type result struct {
	Client  string  `json:"client"`
	Version string  `json:"version"`
	Feature string  `json:"feature"`
	Outcome outcome `json:"outcome"`
	Detail  string  `json:"detail,omitempty"`
	// Once is how it failed the first time, if it was run again.
	Once string `json:"once,omitempty"`
}

// results are those of one server.
type results struct {
	server string
	mu     sync.Mutex
	cells  []result
}

func newResults(server string) *results { return &results{server: server} }

func (r *results) add(c result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells = append(r.cells, c)
}

// keep writes the results to VTOP_CLIENTS_OUT, a directory, if it is set and the run was whole.
func (r *results) keep(whole bool) error {
	dir := os.Getenv("VTOP_CLIENTS_OUT")
	if dir == "" || !whole {
		return nil
	}
	slices.SortStableFunc(r.cells, func(a, b result) int { return placeOf(a) - placeOf(b) })
	b, err := json.MarshalIndent(r.cells, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.server+".json"), append(b, '\n'), 0o600)
}

// placeOf is where a cell stands in the table; cells that stand in none keep their order.
func placeOf(r result) int {
	features := allFeatures()
	c := slices.IndexFunc(allClients(), func(c *client) bool { return c.name == r.Client })
	f := slices.IndexFunc(features, func(f feature) bool { return f.name == r.Feature })
	if f < 0 {
		return 0
	}
	return c*len(features) + f
}
