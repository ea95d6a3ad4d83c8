package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// plain makes a batch of records with these values.
func plain(values ...string) batch.Batch { return build(nil, values...) }

// idempotent makes one of an idempotent producer.
func idempotent(id int64, sequence int32, values ...string) batch.Batch {
	return build(&batch.Producer{ID: id, Sequence: sequence}, values...)
}

func build(p *batch.Producer, values ...string) batch.Batch {
	spec := batch.Spec{Producer: p}
	for _, v := range values {
		spec.Records = append(spec.Records, batch.Record{Timestamp: 1000, Value: []byte(v)})
	}
	return batch.Build(spec)
}

// send appends a batch and returns where its answer will be.
func (n *node) send(r vtop.Range, acks int16, b batch.Batch) <-chan vtop.AppendResult {
	answer := make(chan vtop.AppendResult, 2)
	n.engine.Append(context.Background(), r, vtop.AnyEpoch, b, acks, func(res vtop.AppendResult) { answer <- res })
	return answer
}

// produce sends and waits.
func (n *node) produce(r vtop.Range, values ...string) vtop.AppendResult {
	n.c.t.Helper()
	return n.c.answer(n.send(r, -1, plain(values...)))
}

func (c *cluster) answer(ch <-chan vtop.AppendResult) vtop.AppendResult {
	c.t.Helper()
	select {
	case res := <-ch:
		return res
	case <-time.After(patience):
		c.t.Fatalf("no answer to an append within %s", patience)
		return vtop.AppendResult{}
	}
}

// mustProduce produces and fails the test if it is not acknowledged.
func (n *node) mustProduce(r vtop.Range, values ...string) vtop.Offset {
	n.c.t.Helper()
	res := n.produce(r, values...)
	if res.Err != nil {
		n.c.t.Fatalf("produce on %s: %v", n.name, res.Err)
	}
	return res.Base
}

// readLog reads a replica's own log from its start to its end, whoever leads.
func (n *node) readLog(r vtop.Range) []string {
	n.c.t.Helper()
	log := n.store.Get(r)
	if log == nil {
		n.c.t.Fatalf("%s has no log of %s", n.name, r)
	}
	var out []string
	for at, end := log.Start(), log.End(); at < end; {
		raw, next, _, err := log.Read(at, 1<<20, end, nil)
		if err != nil || len(raw) == 0 {
			n.c.t.Fatalf("read %s at %d: %d bytes, %v", n.name, at, len(raw), err)
		}
		for b, err := range batch.All(raw) {
			if err != nil {
				n.c.t.Fatal(err)
			}
			if err := b.Records(1<<20, func(rec batch.Record) error {
				out = append(out, fmt.Sprintf("%d@%d=%s", rec.Offset, b.Epoch(), rec.Value))
				return nil
			}); err != nil && !errors.Is(err, io.EOF) {
				n.c.t.Fatal(err)
			}
		}
		at = next
	}
	return out
}

// awaitSame waits until all nodes have the leader's log, durable, and returns it (K5).
func (c *cluster) awaitSame(leader vtop.NodeName, r vtop.Range) []string {
	c.t.Helper()
	end := c.nodes[leader].store.Get(r).End()
	for _, name := range c.names {
		if n := c.nodes[name]; n != nil {
			c.await(fmt.Sprintf("%s to reach %d", name, end), func() bool {
				log := n.store.Get(r)
				return log != nil && log.Durable() == end && log.End() == end
			})
		}
	}
	want := c.nodes[leader].readLog(r)
	for _, name := range c.names {
		if n := c.nodes[name]; n != nil {
			c.await(fmt.Sprintf("K5: %s to have what %s has: %v", name, leader, want), func() bool {
				log := n.store.Get(r)
				return log.End() == end && log.Durable() == end && fmt.Sprint(n.readLog(r)) == fmt.Sprint(want)
			})
		}
	}
	return want
}

// isolate cuts the node off from its peers as a leader: its connections break and no new ones come about.
func (n *node) isolate() {
	n.cutOff(n.c.names...)
}

// rejoin ends isolate.
func (n *node) rejoin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// breakConnections closes this node's connections to those that follow it, and waits until none is left.
func (e *Engine) breakConnections() {
	e.peersMu.Lock()
	peers := make([]*peer, 0, len(e.peers))
	for _, p := range e.peers {
		peers = append(peers, p)
	}
	e.peersMu.Unlock()
	for _, p := range peers {
		for {
			p.mu.Lock()
			stream := p.stream
			p.mu.Unlock()
			if stream == nil {
				break
			}
			stream.Close()
			time.Sleep(time.Millisecond)
		}
	}
}

// stallFollower keeps one leader from feeding one follower.
func (c *cluster) stallFollower(leader, follower vtop.NodeName) (resume func()) {
	n := c.nodes[leader]
	n.cutOff(follower)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.cut, follower)
	}
}

// fenceRequest asks for a promise of the range's present lease by one replica.
func fenceRequest(rg *fsm.Range, id vtop.ReplicaID) *peerpb.FenceRequest {
	return &peerpb.FenceRequest{GrantIndex: rg.GrantIndex, Items: []*peerpb.FenceItem{{
		Range: transport.RangeTo(rg.ID), ReplicaId: uint64(id), Epoch: int32(rg.Lease.Epoch),
	}}}
}
