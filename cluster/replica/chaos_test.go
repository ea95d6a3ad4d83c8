package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

// writer is one idempotent producer with a ledger of what was acknowledged. It sends a sequence number until it is
// acknowledged, as a client does: to whoever leads, again and again, the same bytes.
type writer struct {
	c     *cluster
	r     vtop.Range
	id    int64
	mu    sync.Mutex
	acked map[vtop.Offset]string
}

// write sends value with sequence number seq until it is acknowledged or stop is closed.
//
// A leader that was deposed and does not know it yet may want an older sequence number. A client does not ask it, for it has
// seen a higher epoch; this one asks everybody, so only a dead end counts as an error (D2).
func (w *writer) write(seq int32, value string, stop <-chan struct{}) bool {
	for strikes := 0; ; {
		for _, n := range w.c.alive() {
			select {
			case <-stop:
				return false
			default:
			}
			answer := n.send(w.r, -1, idempotent(w.id, seq, value))
			select {
			case res := <-answer:
				if res.Err == nil {
					w.mu.Lock()
					w.acked[res.Base] = value
					w.mu.Unlock()
					return true
				}
				if strikes++; !errors.Is(res.Err, vtop.ErrOutOfOrderSequence) {
					strikes = 0
				}
				if strikes > 1000 {
					w.c.t.Errorf("D2: sequence %d of producer %d: %v", seq, w.id, res.Err)
					return false
				}
			case <-time.After(300 * time.Millisecond): // a client's patience: it asks elsewhere
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// alive lists the nodes that run, in some order.
func (c *cluster) alive() []*node {
	c.nodesMu.Lock()
	defer c.nodesMu.Unlock()
	out := make([]*node, 0, len(c.nodes))
	for _, n := range c.nodes {
		out = append(out, n)
	}
	return out
}

// TestChaos_NothingAcknowledgedIsLost kills, cuts off, pauses and deposes nodes, and cuts their power, in an order that a seed gives, while producers
// write; then it compares their ledgers with every replica (K1, K2, K4, K5). VTOP_CHAOS_ROUNDS and VTOP_CHAOS_SEED widen it.
func TestChaos_NothingAcknowledgedIsLost(t *testing.T) {
	rounds, seed := envInt("VTOP_CHAOS_ROUNDS", 12), uint64(envInt("VTOP_CHAOS_SEED", int(time.Now().UnixNano()%1_000_000)))
	t.Logf("seed %d, %d rounds", seed, rounds)
	rng := rand.New(rand.NewPCG(seed, 0))
	const ranges, writers = 2, 2
	c := newCluster(t, 3, ranges, withCrashFS())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	all := make([]*writer, 0, ranges*writers)
	for i := range ranges {
		for k := range writers {
			w := &writer{c: c, r: c.r(i), id: int64(10*i + k), acked: map[vtop.Offset]string{}}
			all = append(all, w)
			wg.Go(func() {
				for seq := int32(0); w.write(seq, fmt.Sprintf("p%d-%d", w.id, seq), stop); seq++ {
				}
			})
		}
	}
	for range rounds {
		c.mischief(rng, all)
	}
	for _, name := range c.names { // everyone comes back
		c.revive(name)
	}
	leader := c.names[rng.IntN(3)]
	for i := range ranges {
		c.lead(leader, c.r(i))
	}
	before := make([]int, len(all))
	for i, w := range all {
		before[i] = w.count()
	}
	c.await("progress of every producer after the last fault", func() bool {
		sum := 0
		for i, w := range all {
			n := w.count()
			if n <= before[i] {
				return false
			}
			sum += n
		}
		return sum >= rounds
	})
	close(stop)
	wg.Wait()
	total := 0
	for i := range ranges {
		c.nodes[leader].mustProduce(c.r(i), "end")
		log := c.awaitSame(leader, c.r(i))
		for _, w := range all {
			if w.r == c.r(i) {
				total += w.check(log)
			}
		}
	}
	t.Logf("%d records acknowledged", total)
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// check compares the ledger with a log whose entries read offset@epoch=value.
func (w *writer) check(log []string) int {
	at, times := map[string]string{}, map[string]int{}
	for _, rec := range log {
		offset, value := rec[:strings.Index(rec, "@")], rec[strings.Index(rec, "=")+1:]
		at[offset] = value
		times[value]++
	}
	for offset, value := range w.acked {
		if got := at[fmt.Sprint(offset)]; got != value {
			w.c.t.Errorf("K1: %s was acknowledged at %d, there is %q", value, offset, got)
		}
		if times[value] != 1 {
			w.c.t.Errorf("K4: %s is there %d times", value, times[value])
		}
	}
	return len(w.acked)
}

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// mischief does one thing to the cluster, then has somebody who runs lead, and waits for an acknowledgement under it.
func (c *cluster) mischief(rng *rand.Rand, all []*writer) {
	victim := c.names[rng.IntN(len(c.names))]
	undo := func() {}
	switch n := c.nodes[victim]; {
	case n == nil:
		c.revive(victim)
	default:
		switch rng.IntN(7) {
		case 0:
			if len(c.nodes) == len(c.names) { // a majority stays
				c.kill(victim)
			}
		case 1:
			n.isolate()
			undo = n.rejoin
		case 2:
			undo = n.lag()
		case 3:
			n.engine.breakConnections()
		case 4:
			if len(c.nodes) == len(c.names) {
				c.kill(victim)
				c.revive(victim)
			}
		case 5:
			c.powerCut(rng, victim)
			c.revive(victim)
		case 6:
			for _, name := range c.names {
				c.revive(name)
			}
			c.powerCut(rng, c.names...)
			for _, name := range c.names {
				c.revive(name)
			}
		}
	}
	var running []vtop.NodeName
	for _, name := range c.names {
		if c.nodes[name] != nil {
			running = append(running, name)
		}
	}
	// Grants follow one another fast: some are overtaken before they start.
	for _, w := range all {
		for range 1 + rng.IntN(2) {
			c.grant(running[rng.IntN(len(running))], w.r)
		}
	}
	for range rng.IntN(20) {
		time.Sleep(time.Duration(rng.IntN(500)) * time.Microsecond) // the fault's length, not a wait for anything
	}
	undo()
	before := all[0].count()
	if len(running) == len(c.names) {
		c.await("an acknowledgement after a fault", func() bool { return all[0].count() > before })
	}
}

// revive starts a node that does not run.
func (c *cluster) revive(name vtop.NodeName) {
	if c.nodes[name] == nil {
		c.start(name)
	}
}
