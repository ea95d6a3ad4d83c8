package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/transport"
)

// requestTimeout is how long a client waits for one answer before it asks elsewhere.
const requestTimeout = 1500 * time.Millisecond

// client is a producer or a reader outside the cluster, with what a Kafka client knows: who leads, as the newest epoch it has seen
// says.
type client struct {
	life *life
	name string
	rng  *rand.Rand
	// known is the lease that it believes in, of each range. It never goes back to a lower epoch.
	known map[vtop.Range]vtop.Lease
}

func newClient(l *life, name string) *client {
	return &client{life: l, name: name, rng: rngOf(l.seed, "client "+name), known: map[vtop.Range]vtop.Lease{}}
}

// refresh asks some node for the leader of a range.
func (c *client) refresh(ctx context.Context, r vtop.Range) {
	h := c.life.hosts[c.rng.IntN(len(c.life.hosts))]
	lease, err := ask(ctx, c, h.name, func(_ context.Context, q *process) (vtop.Lease, error) {
		rg, ok := q.machine.State().Range(r)
		if !ok {
			return vtop.Lease{}, vtop.ErrUnknownRange
		}
		return rg.Lease, nil
	})
	if err == nil && lease.Holder != "" && lease.Epoch >= c.known[r].Epoch {
		c.known[r] = lease
	}
}

// ask is one request of a client. Its connection is to the host, whatever process runs there.
func ask[A any](ctx context.Context, c *client, to vtop.NodeName, serve func(context.Context, *process) (A, error)) (A, error) {
	var none A
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	n, dest := c.life.net, string(to)
	if err := n.carry(ctx, c.name, dest); err != nil {
		return none, err
	}
	q := c.life.process(to)
	if q == nil {
		return none, transport.ErrUnreachable
	}
	type result struct {
		a   A
		err error
	}
	done := make(chan result, 1)
	if !q.spawn(func(own context.Context) {
		own, cancel := context.WithTimeout(own, callTimeout)
		defer cancel()
		a, err := serve(own, q)
		if !q.dead.Load() {
			done <- result{a, err}
		}
	}) {
		return none, transport.ErrUnreachable
	}
	select {
	case res := <-done:
		if n.chance(dest, c.name, 0.01) {
			return none, transport.ErrCut
		}
		if err := n.carry(ctx, dest, c.name); err != nil {
			return none, err
		}
		return res.a, res.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// produce sends one batch to the leader that the client believes in.
func (c *client) produce(ctx context.Context, r vtop.Range, b batch.Batch, acks int16) (vtop.Offset, error) {
	lease := c.known[r]
	if lease.Holder == "" {
		return 0, vtop.ErrNotLeader
	}
	return ask(ctx, c, lease.Holder, func(ctx context.Context, q *process) (vtop.Offset, error) {
		e, err := q.replicas()
		if err != nil {
			return 0, err
		}
		answer := make(chan vtop.AppendResult, 1)
		last := vtop.Offset(b.LastOffsetDelta())
		e.Append(ctx, r, vtop.AnyEpoch, b, acks, func(res vtop.AppendResult) {
			if res.Err == nil && acks == -1 && !q.dead.Load() {
				c.life.oracle.acknowledging(r, res.Base+last+1)
			}
			answer <- res
		})
		select {
		case res := <-answer:
			return res.Base, res.Err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
}

// producer writes to one range until told to stop. An idempotent one sends a batch until it is acknowledged, the same bytes to
// whoever leads; a plain one gives up what was not acknowledged.
type producer struct {
	*client
	r          vtop.Range
	id         int64
	idempotent bool
	// retires is how many records it writes before it rests for the rest of the life; 0: it never does.
	retires int32
	// newest is the last batch that was acknowledged with acks=all, and base where.
	newest batch.Batch
	base   vtop.Offset
}

func (p *producer) build(seq int32, n int) (batch.Batch, []string) {
	spec := batch.Spec{}
	if p.idempotent {
		spec.Producer = &batch.Producer{ID: p.id, Sequence: seq}
	}
	var values []string
	for i := range n {
		kind := "p"
		if p.idempotent {
			kind = "i"
		}
		v := fmt.Sprintf("%s%d-%d", kind, p.id, seq+int32(i))
		if p.rng.IntN(12) == 0 {
			v += strings.Repeat(".", 200+p.rng.IntN(1200))
		}
		values = append(values, v)
		spec.Records = append(spec.Records, batch.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(v)})
	}
	return batch.Build(spec), values
}

func (p *producer) run(ctx context.Context) {
	for seq := int32(0); ctx.Err() == nil && (p.retires == 0 || seq < p.retires); {
		n := 1 + p.rng.IntN(3)
		b, values := p.build(seq, n)
		acks := int16(-1)
		if !p.idempotent && p.rng.IntN(5) == 0 {
			acks = 1
		}
		for ctx.Err() == nil {
			base, err := p.produce(ctx, p.r, slices.Clone(b), acks)
			if err == nil {
				p.told(base, values, acks)
				if acks == -1 {
					p.newest, p.base = b, base
				}
				break
			}
			if !p.idempotent && !errors.Is(err, vtop.ErrNotLeader) {
				break // its fate is unknown, and a retry would be another record
			}
			if sleep(ctx, time.Duration(5+p.rng.IntN(40))*time.Millisecond) != nil {
				return
			}
			p.refresh(ctx, p.r)
			if !p.idempotent {
				break
			}
		}
		seq += int32(n)
		if p.rng.IntN(4) == 0 {
			_ = sleep(ctx, time.Duration(p.rng.IntN(400))*time.Millisecond) // the loop looks at ctx
		} else {
			_ = sleep(ctx, time.Duration(10+p.rng.IntN(60))*time.Millisecond)
		}
	}
}

func (p *producer) told(base vtop.Offset, values []string, acks int16) {
	if acks != -1 {
		return // on one disk only
	}
	for i, v := range values {
		p.life.oracle.saw(p.name, p.r, base+vtop.Offset(i), v, true)
	}
}

// reader follows one range.
type reader struct {
	*client
	r          vtop.Range
	at         vtop.Offset
	last       vtop.Epoch // of the record below at; -1 before the first
	end, start vtop.Offset
}

func (c *reader) run(ctx context.Context) {
	c.last = -1
	for ctx.Err() == nil {
		c.step(ctx)
		_ = sleep(ctx, time.Duration(30+c.rng.IntN(250))*time.Millisecond) // the loop looks at ctx
	}
}

// step fetches once.
func (c *reader) step(ctx context.Context) {
	lease := c.known[c.r]
	if lease.Holder == "" || c.rng.IntN(15) == 0 {
		c.refresh(ctx, c.r)
		return
	}
	if c.rng.IntN(6) == 0 {
		c.askEnd(ctx, lease)
		return
	}
	spec := vtop.FetchSpec{Offset: c.at, MaxBytes: 2048, AtLeastOne: true, ClientEpoch: lease.Epoch, LastFetchedEpoch: c.last}
	res, err := ask(ctx, c.client, lease.Holder, func(_ context.Context, q *process) (vtop.FetchResult, error) {
		e, err := q.replicas()
		if err != nil {
			return vtop.FetchResult{}, err
		}
		return e.Fetch(c.r, spec, nil)
	})
	switch {
	case errors.Is(err, vtop.ErrOffsetOutOfRange):
		c.outside(res)
	case err != nil:
		c.refresh(ctx, c.r)
	case res.Diverging != nil:
		c.life.oracle.fail("I7: %s has read up to %d, epoch %d, of range %d; under epoch %d that diverges at %+v", c.name, c.at, c.last, c.r.Index, lease.Epoch, *res.Diverging)
		c.last = -1
	default:
		c.took(lease.Epoch, res)
	}
}

// askEnd asks for the end offset, as ListOffsets does.
func (c *reader) askEnd(ctx context.Context, lease vtop.Lease) {
	end, err := ask(ctx, c.client, lease.Holder, func(_ context.Context, q *process) (vtop.Offset, error) {
		e, err := q.replicas()
		if err != nil {
			return 0, err
		}
		at, err := e.EndOffset(c.r, lease.Epoch)
		return at.Offset, err
	})
	if err != nil {
		c.refresh(ctx, c.r)
		return
	}
	if end < c.end {
		c.life.oracle.fail("K3: the end of range %d went from %d back to %d for %s, asked for under epoch %d", c.r.Index, c.end, end, c.name, lease.Epoch)
	}
	c.end = max(c.end, end)
}

// outside: the log start has passed the reader, or what it saw is gone.
func (c *reader) outside(res vtop.FetchResult) {
	if res.LogStart > c.at {
		c.at, c.last = res.LogStart, -1
		return
	}
	c.life.oracle.fail("K3: %s has read up to %d of range %d, which is out of range now: start %d", c.name, c.at, c.r.Index, res.LogStart)
	c.at, c.last = res.LogStart, -1
}

func (c *reader) took(epoch vtop.Epoch, res vtop.FetchResult) {
	if res.HighWatermark >= 0 {
		if res.HighWatermark < c.end {
			c.life.oracle.fail("K3: the end of range %d went from %d back to %d for %s, under epoch %d", c.r.Index, c.end, res.HighWatermark, c.name, epoch)
		}
		c.end = max(c.end, res.HighWatermark)
	}
	if res.LogStart < c.start {
		c.life.oracle.fail("K3: the start of range %d went from %d back to %d for %s", c.r.Index, c.start, res.LogStart, c.name)
	}
	c.start = max(c.start, res.LogStart)
	c.take(res.Dst)
}

// take hands the oracle what came, from the position on.
func (c *reader) take(raw []byte) {
	for b, err := range batch.All(raw) {
		if err == nil {
			err = b.Check()
		}
		if err != nil {
			c.life.oracle.fail("I9: %s got bytes of range %d at %d that are no batch: %v", c.name, c.r.Index, c.at, err)
			return
		}
		if b.BaseOffset() > c.at {
			c.life.oracle.fail("K1: %s asked for %d of range %d and got a batch at %d", c.name, c.at, c.r.Index, b.BaseOffset())
		}
		_ = b.Records(1<<20, func(rec batch.Record) error { // Check has passed
			if rec.Offset >= c.at {
				c.life.oracle.saw(c.name, c.r, rec.Offset, string(rec.Value), false)
				c.at, c.last = rec.Offset+1, b.Epoch()
			}
			return nil
		})
	}
}
