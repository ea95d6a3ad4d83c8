//go:build cluster

package chaos

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/test/history"
)

// The topics of a life. Those that administrators make and delete have other names.
const (
	exact = "exact" // idempotent producers, one a range; its histories are kept
	plain = "plain" // a producer that is not idempotent
	trim  = "trim"  // small segments and a small retention: something is sealed and deleted all the time

	exactRanges, plainRanges, trimRanges = 3, 2, 1
)

var topics = []string{exact, plain, trim}

// load is the clients of a life.
type load struct {
	w         *world
	ledgers   map[string][]*harness.Ledger
	counted   map[*harness.Ledger]counted // what of a ledger is in the histories already
	observers map[string]*harness.Observer
	groups    []*harness.Members
	histories []*history.History

	mu   sync.Mutex
	ends [exactRanges][]end // asked for since the last check
}

// end is an answer to the question for the end of a range.
type end struct {
	offset          int64
	epoch           int32
	asked, answered time.Time
}

type counted struct{ acks, given int }

func (w *world) createTopics() {
	mib, keep := "1048576", "4194304"
	w.createTopic(exact, exactRanges, map[string]*string{"segment.bytes": &mib})
	w.createTopic(plain, plainRanges, nil)
	w.createTopic(trim, trimRanges, map[string]*string{"segment.bytes": &mib, "retention.bytes": &keep})
}

func (w *world) startLoad() {
	t, seeds := w.t, w.c.Bootstrap()
	l := &load{w: w, ledgers: map[string][]*harness.Ledger{}, counted: map[*harness.Ledger]counted{}, observers: map[string]*harness.Observer{}}
	w.load = l
	for r := range int32(exactRanges) {
		l.histories = append(l.histories, history.New(false))
		l.ledgers[exact] = append(l.ledgers[exact], harness.StartLedger(t, seeds, exact, harness.LedgerOptions{
			Ranges: 1, Base: r, Size: 512, InFlight: 16, PerSecond: 100, First: uint64(r+1) << 40,
		}))
	}
	l.ledgers[plain] = []*harness.Ledger{harness.StartLedger(t, seeds, plain, harness.LedgerOptions{
		Ranges: plainRanges, Size: 256, InFlight: 16, PerSecond: 100, Client: []kgo.Opt{kgo.DisableIdempotentWrite()},
	})}
	l.ledgers[trim] = []*harness.Ledger{harness.StartLedger(t, seeds, trim, harness.LedgerOptions{
		Ranges: trimRanges, Size: 4096, InFlight: 16, PerSecond: 150,
	})}
	l.observers[exact] = harness.StartObserver(t, seeds, exact, l)
	l.observers[trim] = harness.StartObserver(t, seeds, trim)
	l.groups = []*harness.Members{
		harness.StartMembers(t, seeds, "classic", exact, 2),
		harness.StartMembers(t, seeds, "consumer", exact, 1, kgo.ServerSideBalancer()),
	}
}

// SawRecords implements harness.Witness.
func (l *load) SawRecords(r int32, offset int64, ids []uint64, at time.Time) {
	l.histories[r].Read(offset, slices.Clone(ids), at)
}

// SawEnd implements harness.Witness.
func (l *load) SawEnd(r int32, offset int64, epoch int32, asked, answered time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[r] = append(l.ends[r], end{offset, epoch, asked, answered})
}

func (l *load) all() []*harness.Ledger {
	var out []*harness.Ledger
	for _, topic := range topics {
		out = append(out, l.ledgers[topic]...)
	}
	return out
}

// more waits until every ledger has so many more records acknowledged.
func (l *load) more(n int, limit time.Duration) error {
	before := map[*harness.Ledger]int{}
	for _, ledger := range l.all() {
		before[ledger] = ledger.Count()
	}
	return harness.Within(limit, func() error {
		for _, topic := range topics {
			for i, ledger := range l.ledgers[topic] {
				if got := ledger.Count() - before[ledger]; got < n {
					return fmt.Errorf("producer %d of %s: %d of %d more records acknowledged within %s (given up: %v)", i, topic, got, n, limit, ledger.Failed())
				}
			}
		}
		return nil
	})
}

// pause lets all ledgers rest, with everything answered; resume lets them go on.
func (l *load) pause(limit time.Duration) (resume func(), err error) {
	var paused []*harness.Ledger
	resume = func() {
		for _, ledger := range paused {
			ledger.Resume()
		}
	}
	for _, topic := range topics {
		for i, ledger := range l.ledgers[topic] {
			if err := ledger.Pause(limit); err != nil {
				resume()
				return nil, fmt.Errorf("producer %d of %s: %w", i, topic, err)
			}
			paused = append(paused, ledger)
		}
	}
	return resume, nil
}

func (l *load) acks(topic string) []harness.Ack {
	var out []harness.Ack
	for _, ledger := range l.ledgers[topic] {
		out = append(out, ledger.Acks()...)
	}
	return out
}

// grant is the moment at which the lease of an epoch was granted, or one before.
type grant struct {
	epoch int32
	at    time.Time
}

// remember puts what the clients of exact did since the last time into the histories. A holder that is cut off answers for the end
// until its deadline, under its epoch, by design: an answer to a question that was asked when the next epoch was granted already is left
// out, and counted.
func (l *load) remember(grants [][]grant) (stale int) {
	for r, ledger := range l.ledgers[exact] {
		acks, given, c := ledger.Acks(), ledger.Given(), l.counted[ledger]
		for _, a := range acks[c.acks:] {
			l.histories[r].Appended(a.ID, a.Offset, a.Sent, a.At)
		}
		for _, a := range given[c.given:] {
			l.histories[r].Unanswered(a.ID, a.Sent)
		}
		l.counted[ledger] = counted{len(acks), len(given)}
		l.mu.Lock()
		ends := l.ends[r]
		l.ends[r] = nil
		l.mu.Unlock()
		for _, e := range ends {
			if deposed(e, grants[r]) {
				stale++
				continue
			}
			l.histories[r].End(e.offset, e.asked, e.answered)
		}
	}
	return stale
}

// deposed reports whether a later epoch than an answer's was granted when the question was asked.
func deposed(e end, grants []grant) bool {
	return slices.ContainsFunc(grants, func(g grant) bool { return g.epoch > e.epoch && !g.at.After(e.asked) })
}

// leaseTime is vtopd's default: a holder that hears of no verified Raft leader stops by then.
const leaseTime = 10 * time.Second

// grantSlack is how much later than its stamp a grant may come to be committed, beside what the machine stood still.
const grantSlack = 5 * time.Second

// justGranted reports whether the holder before the present one may have been asked, which was not due to know that it is deposed.
// A grant has the time at which it was proposed: where the machine stood still meanwhile, the old holder's deadline is later by that.
func justGranted(grants []grant, asked time.Time, stood time.Duration) bool {
	return slices.ContainsFunc(grants, func(g grant) bool { return !g.at.After(asked) && asked.Sub(g.at) < leaseTime+grantSlack+stood })
}

// given is an error if a producer gave a record up: nothing here exhausts its retries, and no answer of a node that is struck may be
// one on which a client stops trying.
func (l *load) given() error {
	var errs []error
	for _, topic := range topics {
		for i, ledger := range l.ledgers[topic] {
			if failed := ledger.Failed(); len(failed) > 0 {
				errs = append(errs, fmt.Errorf("producer %d of %s gave up %d records, the first: %w", i, topic, len(failed), failed[0]))
			}
		}
	}
	return errors.Join(errs...)
}

// silence is the longest time without an acknowledged record, of the range that had the longest, that began from a blow to its
// healing: for a blow that tells at once, from it to the next acknowledged record.
func (l *load) silence(b *blow) time.Duration {
	var worst time.Duration
	from, healed := b.struck, b.healed
	for r, ledger := range l.ledgers[exact] {
		if b.rests != nil && *b.rests == int32(r) {
			continue
		}
		before := from
		for _, a := range ledger.Acks() {
			if a.At.Before(from) {
				continue
			}
			if before.After(healed) {
				break
			}
			worst = max(worst, a.At.Sub(before))
			before = a.At
		}
	}
	return worst
}

// stop ends all clients.
func (l *load) stop() {
	for _, ledger := range l.all() {
		ledger.StopKeepingFailures(calm)
	}
	for _, m := range l.groups {
		m.Stop()
	}
	for _, o := range l.observers {
		o.Stop()
	}
}
