//go:build cluster

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/vtop-log/vtop/test/harness"
)

// catalogue is every fault.
func catalogue() []fault {
	out := []fault{
		{name: "kill-holder", run: killing(holder)},
		{name: "kill-follower", run: killing(follower)},
		{name: "kill-raft-leader", run: killing(raftLeader)},
		{name: "kill-coordinator", run: killing(coordinator)},
		{name: "kill-all", alone: true, run: killAll},
		{name: "pause-holder", run: pausing(holder)},
		{name: "pause-follower", run: pausing(follower)},
		{name: "pause-raft-leader", run: pausing(raftLeader)},
		{name: "pause-all", alone: true, run: pauseAll},
		{name: "restart-in-lease", run: restartInLease},
		{name: "two-failovers", waits: true, run: twoFailovers},
		{name: "empty-epochs", waits: true, run: emptyEpochs},
		{name: "clock-step", run: clockStep},
		{name: "rolling-restart", alone: true, run: rollingRestart},
		{name: "new-address", run: newAddress},
		{name: "topic-made-again", run: topicMadeAgain},
	}
	out = append(out, diskFaults()...)
	return append(out, networkFaults()...)
}

func killing(as role) func(*blow) error {
	return func(b *blow) error {
		n, release, err := b.claim(as)
		if err != nil {
			return err
		}
		defer release()
		b.strike("%s, %s, killed", n.Name, as)
		n.Kill()
		b.hold(0, 6*time.Second)
		return b.start(n)
	}
}

func killAll(b *blow) error {
	defer b.claimAll()()
	b.strike("all nodes killed")
	for _, n := range b.w.c.Nodes {
		n.Kill()
	}
	b.hold(0, time.Second)
	return b.startAll()
}

func (b *blow) startAll() error {
	for _, n := range b.w.c.Nodes {
		n.Start()
	}
	var errs []error
	for _, n := range b.w.c.Nodes {
		errs = append(errs, b.ready(n))
	}
	return errors.Join(errs...)
}

// pausing stops a process for less or for more than a lease time.
func pausing(as role) func(*blow) error {
	return func(b *blow) error {
		n, release, err := b.claim(as)
		if err != nil {
			return err
		}
		defer release()
		b.strike("%s, %s, paused", n.Name, as)
		n.Pause()
		b.hold(500*time.Millisecond, 12*time.Second)
		n.Resume()
		return b.ready(n)
	}
}

func pauseAll(b *blow) error {
	defer b.claimAll()()
	b.strike("all nodes paused")
	for _, n := range b.w.c.Nodes {
		n.Pause()
	}
	b.hold(500*time.Millisecond, 12*time.Second)
	var errs []error
	for _, n := range b.w.c.Nodes {
		n.Resume()
	}
	for _, n := range b.w.c.Nodes {
		errs = append(errs, b.ready(n))
	}
	return errors.Join(errs...)
}

// clockStep sets the clock of a node, which may be the Raft leader, forward or back by hours, and sets it right again. The
// clocks of the drill itself, and those of the other nodes, go on.
func clockStep(b *blow) error {
	n, release, err := b.claim(role(b.rng.IntN(int(coordinator))))
	if err != nil {
		return err
	}
	defer release()
	by := time.Duration(6+b.rng.IntN(7)) * time.Hour // more than a life lasts, less than anything is kept for
	if b.heads() {
		by = -by
	}
	b.w.stepped.Store(by.Milliseconds())
	b.strike("clock of %s stepped by %s", n.Name, by)
	if err := n.TryStepClock(by); err != nil {
		return didNotRun(err)
	}
	b.hold(time.Second, 12*time.Second)
	return errors.Join(n.TryStepClock(0), b.ready(n))
}

func restartInLease(b *blow) error {
	n, release, err := b.claim(holder)
	if err != nil {
		return err
	}
	defer release()
	b.strike("%s, the holder, killed and started at once", n.Name)
	n.Kill()
	return b.start(n)
}

// twoFailovers kills a holder, and the next one as soon as it serves.
func twoFailovers(b *blow) error {
	first, release, err := b.claim(holder)
	if err != nil {
		return err
	}
	defer release()
	b.strike("%s, the holder, killed", first.Name)
	first.Kill()
	second, releaseSecond, err := b.claim(holder)
	if err != nil {
		return errors.Join(err, b.start(first))
	}
	defer releaseSecond()
	second.Kill()
	b.did += ", then " + second.Name + ", which held after it"
	b.hold(0, 2*time.Second)
	first.Start()
	second.Start()
	return errors.Join(b.ready(first), b.ready(second))
}

// emptyEpochs kills one holder of a range after the other while nobody writes to it: epochs begin and end without a record.
func emptyEpochs(b *blow) error {
	index := b.rng.Int32N(exactRanges)
	if err := b.w.load.ledgers[exact][index].Pause(calm); err != nil {
		return fmt.Errorf("no rest for range %d: %w", index, err)
	}
	b.rests = &index
	defer b.w.load.ledgers[exact][index].Resume()
	b.strike("range %d of %s has nobody who writes", index, exact)
	for range 3 {
		n, release, err := b.claimOf(holder, index)
		if err != nil {
			return err
		}
		err = b.endEpoch(n, index)
		release()
		if err != nil {
			return err
		}
	}
	return nil
}

// endEpoch kills the holder of a range to which nobody writes, waits for the next epoch, which begins and ends where the one
// before ended, and starts the node again.
func (b *blow) endEpoch(n *harness.Node, index int32) error {
	before, err := b.w.lease(exact, index)
	if err != nil || before.Holder != n.Name {
		return errors.Join(err, b.ready(n)) // an administrator moved it
	}
	end := int64(0)
	for _, a := range b.w.load.ledgers[exact][index].Acks() {
		end = max(end, a.Offset+1)
	}
	n.Kill()
	err = harness.Within(calm, func() error {
		now, err := b.w.lease(exact, index)
		if err == nil && (now.Epoch <= before.Epoch || now.HighWatermark != end || now.LogEnd != end) {
			err = fmt.Errorf("%+v behind epoch %d, which ended at %d", now, before.Epoch, end)
		}
		return err
	})
	b.did += fmt.Sprintf(", %s killed in epoch %d", n.Name, before.Epoch)
	return errors.Join(err, b.start(n))
}

// rollingRestart restarts every node, as fast as the gate for it allows.
func rollingRestart(b *blow) error {
	b.strike("every node stopped and started when it is safe to")
	for _, n := range b.w.c.Nodes {
		if err := b.restartSafely(n); err != nil {
			return err
		}
	}
	return nil
}

func (b *blow) restartSafely(n *harness.Node) error {
	b.w.claims[n.Index].Lock()
	defer b.w.claims[n.Index].Unlock()
	other := b.w.c.Nodes[(n.Index+1)%nodes]
	if err := harness.Within(calm, func() error { return ctl(other, 20*time.Second, "node", "safe-to-stop", n.Name) }); err != nil {
		return err
	}
	if err := b.stop(n); err != nil {
		return err
	}
	return b.start(n)
}

// newAddress starts a node under other ports; the lists that the others were started with name the old ones.
func newAddress(b *blow) error {
	n, release, err := b.claim(anyNode)
	if err != nil {
		return err
	}
	defer release()
	b.strike("%s stopped and started under another address", n.Name)
	if err := b.stop(n); err != nil {
		return err
	}
	n.Move()
	return b.start(n)
}

const phoenix = "phoenix"

// topicMadeAgain deletes a topic and makes it again under its name while a producer, of a kind that knows it by name only,
// goes on: the new one has nothing of the old one, and all that it acknowledged.
func topicMadeAgain(b *blow) error {
	ctx, cancel := harness.WithLimit(context.Background(), 2*calm)
	defer cancel()
	create := func() error {
		return harness.Within(calm, func() error {
			resp, err := b.w.adm.CreateTopic(ctx, 1, 3, nil, phoenix)
			return errors.Join(err, resp.Err)
		})
	}
	if err := create(); err != nil {
		return fmt.Errorf("create %s: %w", phoenix, err)
	}
	client, err := kgo.NewClient(append(harness.ClientOptions(b.w.c.Bootstrap()), kgo.DefaultProduceTopic(phoenix), kgo.MaxVersions(kversion.V2_7_0()),
		kgo.UnknownTopicRetries(-1), kgo.DisableIdempotentWrite())...)
	if err != nil {
		return err
	}
	defer client.Close()
	produce := func(from, n uint64) (acks []harness.Ack, err error) {
		for id := from; id < from+n; id++ {
			sent := time.Now()
			rec := &kgo.Record{Value: harness.Payload(id, 64)}
			if err := client.ProduceSync(ctx, rec).FirstErr(); err != nil {
				return nil, fmt.Errorf("record %d to %s: %w", id, phoenix, err)
			}
			acks = append(acks, harness.Ack{ID: id, Offset: rec.Offset, Sent: sent, At: time.Now()})
		}
		return acks, nil
	}
	const old, under, fresh = 1, 1000, 100_000
	if _, err := produce(old, 50); err != nil {
		return err
	}
	stop := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		for id := uint64(under); ; id++ {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if _, err := produce(id, 1); err != nil {
				ended <- err
				return
			}
		}
	}()
	b.strike("topic %s deleted and made again", phoenix)
	_, err = b.w.adm.DeleteTopics(ctx, phoenix)
	err = errors.Join(err, create())
	close(stop)
	if err = errors.Join(err, <-ended); err != nil {
		return err
	}
	acks, err := produce(fresh, 50)
	if err != nil {
		return err
	}
	return errors.Join(b.verifyPhoenix(acks, under), harness.Within(calm, func() error {
		_, err := b.w.adm.DeleteTopics(ctx, phoenix)
		return err
	}))
}

// verifyPhoenix reads what stands in the topic that was made again: no record that was acknowledged before it was deleted.
func (b *blow) verifyPhoenix(acks []harness.Ack, firstUnder uint64) error {
	var l harness.Lease
	if err := harness.Within(calm, func() (err error) {
		if l, err = b.w.lease(phoenix, 0); err == nil && l.HighWatermark <= acks[len(acks)-1].Offset {
			err = fmt.Errorf("%s is committed up to %d, acknowledged was offset %d", phoenix, l.HighWatermark, acks[len(acks)-1].Offset)
		}
		return err
	}); err != nil {
		return err
	}
	read := harness.ReadAll(b.w.t, b.w.c.Bootstrap(), phoenix, map[int32]int64{0: l.HighWatermark})
	for _, r := range read {
		if r.ID < firstUnder {
			return fmt.Errorf("offset %d of %s has record %d of the topic that was deleted", r.Offset, phoenix, r.ID)
		}
	}
	return harness.CheckPlainLedger(acks, read)
}
