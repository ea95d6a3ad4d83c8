package drill

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// blows lets them fall until the time is over or ctx ends, and returns when the last one is healed.
func (r *runner) blows(ctx context.Context) {
	looking, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { r.watch(looking) })
	wg.Go(func() { r.tick(looking) })
	defer wg.Wait()
	defer stop()
	timed, cancel := context.WithDeadline(ctx, r.report.Started.Add(r.cfg.Duration))
	defer cancel()
	for n := 0; timed.Err() == nil; {
		began := time.Now()
		struck, healed := r.round(timed, ctx, n)
		n += struck
		if !healed {
			return
		}
		r.enter("waiting for the next blow")
		select {
		case <-timed.Done():
		case <-time.After(r.cfg.Interval - time.Since(began)):
		}
	}
}

// round is one blow, or several at once, with the healing. timed is until when it may fall; ctx ends with the operator's
// patience. healed is false if no other one may follow.
func (r *runner) round(timed, ctx context.Context, n int) (struck int, healed bool) {
	targets, err := r.aim(timed, n)
	if err != nil {
		if timed.Err() == nil {
			r.note("a blow was held back: %v", err)
		}
		return 0, true
	}
	first := len(r.report.Blows)
	for i := range targets {
		t := &targets[i]
		r.enter("striking: " + t.what)
		b := Blow{N: n + i + 1, What: t.what, Node: t.node.Name, Range: t.rng, AtMS: time.Since(r.report.Started).Milliseconds(), WholeMS: -1, DownFromMS: -1, DownRange: -1}
		r.tell("blow %d: %s", b.N, t.what)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		err := r.fault.blow(call, r, t)
		cancel()
		if err != nil {
			// It may have fallen although nobody said so: it is healed like any other.
			r.note("blow %d (%s) was answered with: %v", b.N, t.what, err)
		}
		r.report.Blows = append(r.report.Blows, b)
		r.struck.Add(1)
	}
	return len(targets), r.heal(ctx, targets, r.report.Blows[first:])
}

// aim waits until the cluster is whole and the target safe to stop. Further targets at once were asked for: they are not
// asked about.
func (r *runner) aim(ctx context.Context, n int) ([]target, error) {
	r.enter("waiting until the cluster is whole")
	if err := r.await(ctx, r.cfg.Patience, r.whole); err != nil {
		return nil, err
	}
	var targets []target
	err := r.await(ctx, r.cfg.Patience, func(ctx context.Context) error {
		w, err := r.look(ctx)
		if err != nil {
			return err
		}
		targets = targets[:0]
		for i := range r.cfg.AtOnce {
			t, err := r.fault.aim(w, n+i, targets)
			if err != nil && len(targets) == 0 {
				return err
			} else if err != nil {
				break
			}
			targets = append(targets, t)
		}
		if !r.fault.strikes {
			return nil
		}
		r.enter("asking whether " + targets[0].node.Name + " is safe to stop")
		return r.safe(ctx, targets[0].node.Name)
	})
	return targets, err
}

// safe returns nil if the node may be stopped now.
func (r *runner) safe(ctx context.Context, node string) error {
	s, err := r.admin.SafeToStop(ctx, node)
	if err != nil {
		return err
	}
	if s.Safe {
		return nil
	}
	for _, why := range append(slices.Clone(s.Reasons), s.Unknown...) {
		return fmt.Errorf("%s is not safe to stop: %s: %s", node, why.Subject, why.Message)
	}
	return fmt.Errorf("%s is not safe to stop", node)
}

func (r *runner) look(ctx context.Context) (*world, error) {
	nodes, err := r.admin.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	leases, err := r.admin.Leases(ctx, r.topic)
	if err == nil && len(leases) == 0 {
		err = fmt.Errorf("topic %s has no ranges", r.topic)
	}
	return &world{nodes: nodes, leases: leases}, err
}

// heal waits until the faults have passed and every replica votes and follows. The end of ctx cancels what can be cancelled
// and goes on waiting.
func (r *runner) heal(ctx context.Context, targets []target, blows []Blow) bool {
	r.enter("waiting until it is healed")
	on := context.WithoutCancel(ctx)
	stopped := ctx.Done()
	err := r.await(on, r.cfg.Patience+r.cfg.Pause, func(one context.Context) error {
		select {
		case <-stopped:
			stopped = nil
			r.tell("interrupted: healing, no other blow falls")
			r.cancelJobs(one, targets)
		default:
		}
		for i := range targets {
			if err := r.fault.over(one, r, &targets[i]); err != nil {
				return err
			}
		}
		return r.whole(one)
	})
	for i := range blows {
		if err != nil {
			blows[i].Failed = err.Error()
			continue
		}
		blows[i].WholeMS = time.Since(r.report.Started).Milliseconds() - blows[i].AtMS
	}
	if err != nil {
		r.fail("blow %d (%s) was not healed: %v", blows[0].N, blows[0].What, err)
		return false
	}
	r.tell("whole again after %s", span(blows[0].WholeMS))
	return true
}

func (r *runner) cancelJobs(ctx context.Context, targets []target) {
	for _, t := range targets {
		if t.job == 0 || r.fault.strikes { // what heals a wiped replica goes on
			continue
		}
		if _, err := r.admin.CancelRepair(ctx, t.job); err != nil {
			r.note("repair %d could not be cancelled: %v", t.job, err)
		}
	}
}

// whole returns nil if every range of the topic serves and every replica is a voter that leads or follows.
func (r *runner) whole(ctx context.Context) error {
	leases, err := r.admin.Leases(ctx, r.topic)
	if err != nil {
		return err
	}
	if len(leases) == 0 {
		return fmt.Errorf("topic %s has no ranges", r.topic)
	}
	for _, l := range leases {
		if l.State != "serving" {
			return fmt.Errorf("range %d is %s: %s", l.Range, l.State, dash(l.Reason))
		}
		if len(l.Replicas) < r.report.Replicas {
			return fmt.Errorf("range %d has %d of %d replicas", l.Range, len(l.Replicas), r.report.Replicas)
		}
		for _, rep := range l.Replicas {
			if rep.Role != "voter" || rep.State != "leading" && rep.State != "following" {
				return fmt.Errorf("range %d: the replica of %s is a %s and %s", l.Range, rep.Node, rep.Role, rep.State)
			}
		}
	}
	return nil
}
