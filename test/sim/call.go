package sim

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
)

// exchange is one call from a process to a node: a question, which may be lost, or come twice, and an answer, which may be lost.
// serve runs in the called process.
func exchange[A any](ctx context.Context, p *process, to vtop.NodeName, serve func(context.Context, *process) (A, error)) (A, error) {
	var none A
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, from, dest := p.host.life.net, p.name(), string(to)
	if err := n.carry(ctx, from, dest); err != nil {
		return none, fmt.Errorf("%w: %s: %w", transport.ErrUnreachable, to, err)
	}
	q := p.host.life.process(to)
	if p.dead.Load() || q == nil {
		return none, fmt.Errorf("%w: %s: connection refused", transport.ErrUnreachable, to)
	}
	if n.chance(from, dest, n.drop) {
		return none, fmt.Errorf("%w: the question to %s was lost", transport.ErrCut, to)
	}
	if n.chance(from, dest, 0.02) { // a copy that was held up somewhere; nobody hears its answer
		late := n.delay(from, dest) + n.delay(from, dest)*20
		q.spawn(func(ctx context.Context) {
			if sleep(ctx, late) == nil {
				_, _ = serve(ctx, q)
			}
		})
	}
	type result struct {
		a   A
		err error
	}
	done := make(chan result, 1)
	deadline, _ := ctx.Deadline()
	ok := q.spawn(func(own context.Context) {
		own, cancel := context.WithDeadline(own, deadline)
		defer cancel()
		a, err := serve(own, q)
		if !q.dead.Load() {
			done <- result{a, wireError(q, err)}
		}
	})
	if !ok {
		return none, fmt.Errorf("%w: %s: connection refused", transport.ErrUnreachable, to)
	}
	select {
	case r := <-done:
		if n.chance(from, dest, n.drop) {
			return none, fmt.Errorf("%w: the answer of %s was lost", transport.ErrCut, to)
		}
		if err := n.carry(ctx, dest, from); err != nil {
			return none, fmt.Errorf("%w: %s: %w", vtop.ErrTimeout, to, err)
		}
		return r.a, r.err
	case <-q.ctx.Done():
		_ = sleep(ctx, n.delay(dest, from)) // the next line says what happened
		return none, fmt.Errorf("%w: %s died", transport.ErrCut, to)
	case <-ctx.Done():
		return none, fmt.Errorf("%w: %s: %w", vtop.ErrTimeout, to, context.Cause(ctx))
	}
}

// carry waits until one message has arrived.
func (n *network) carry(ctx context.Context, from, to string) error {
	if err := n.await(ctx, from, to); err != nil {
		return err
	}
	if err := sleep(ctx, n.delay(from, to)); err != nil {
		return err
	}
	return n.await(ctx, from, to)
}

// wireError is what is left of an error at the other side, by the table of package transport.
func wireError(q *process, err error) error {
	if err == nil {
		return nil
	}
	return transport.RefusalOf(transport.RefuseFollow(q.host.name, 0, 0, err))
}

// call is exchange for the messages of the peer plane.
func call[Q, A proto.Message](ctx context.Context, p *process, to vtop.NodeName, req Q, serve func(context.Context, *process, transport.Caller, Q) (A, error)) (A, error) {
	from := transport.Caller{Self: p.self(), Addr: p.name()}
	return exchange(ctx, p, to, func(ctx context.Context, q *process) (A, error) {
		a, err := serve(ctx, q, from, proto.CloneOf(req))
		if err == nil {
			a = proto.CloneOf(a)
		}
		return a, err
	})
}

// spawn runs fn in the process, which waits for it when it ends; false if it has ended.
func (p *process) spawn(fn func(context.Context)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing || p.dead.Load() {
		return false
	}
	p.wg.Go(func() { fn(p.ctx) })
	return true
}

// every runs fn each interval until ctx ends.
func every(ctx context.Context, d time.Duration, fn func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			fn()
		case <-ctx.Done():
			return
		}
	}
}
