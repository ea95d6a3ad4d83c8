//go:build cluster

package chaos

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// decide bounds the search for an order of one range's operations, which takes less than a second.
const decide = 10 * time.Minute

// check holds the cluster against all checks while nothing is struck and no producer writes.
func (w *world) check(checks *[]string) error {
	resume, err := w.load.pause(calm)
	if err != nil {
		return fmt.Errorf("unavailable: %w", err)
	}
	defer resume()
	leases, err := w.whole()
	if err != nil {
		return err
	}
	errs := []error{w.load.given()}
	for _, topic := range topics {
		errs = append(errs, w.checkTopic(topic, leases[topic], checks))
	}
	ends := map[int32]int64{}
	for _, l := range leases[exact] {
		ends[l.Range] = l.HighWatermark
	}
	errs = append(errs, w.checkGroups(ends, checks), w.nothingLeft())
	breaches, epochs := w.leases.found()
	*checks = append(*checks, fmt.Sprintf("K6 %d epochs", epochs))
	return errors.Join(append(errs, breaches...)...)
}

// whole waits until every range is served by three voters that have everything, and nothing is under way.
func (w *world) whole() (map[string][]harness.Lease, error) {
	out := map[string][]harness.Lease{}
	err := harness.Within(calm, func() error {
		jobs, err := w.c.Repairs(false)
		if err != nil || len(jobs) > 0 {
			return fmt.Errorf("repairs under way: %+v (%v)", jobs, err)
		}
		for _, topic := range topics {
			leases, err := w.c.Leases(topic)
			if err != nil {
				return err
			}
			if err := wholeLeases(leases); err != nil {
				return err
			}
			out[topic] = leases
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("not whole %s after the last blow: %w", calm, err)
	}
	return out, nil
}

// wholeLeases wants three voters at least: a repair to one more node, in nobody's place, makes it four.
func wholeLeases(leases []harness.Lease) error {
	if len(leases) == 0 {
		return errors.New("no leases")
	}
	for _, l := range leases {
		if l.State != "serving" || l.HighWatermark != l.LogEnd || l.Floor != l.LogEnd || len(l.Replicas) < 3 {
			return fmt.Errorf("%s/%d: %+v", l.Topic, l.Range, l)
		}
		for _, r := range l.Replicas {
			if r.Role != "voter" || r.LogEnd != l.LogEnd || r.Lag != 0 || r.State != "leading" && r.State != "following" {
				return fmt.Errorf("%s/%d: replica %+v, log end %d", l.Topic, l.Range, r, l.LogEnd)
			}
		}
	}
	return nil
}

// checkTopic reads a topic back: K1 to K5, and the histories of exact.
func (w *world) checkTopic(topic string, leases []harness.Lease, checks *[]string) error {
	ends, starts := map[int32]int64{}, map[int32]int64{}
	for _, l := range leases {
		ends[l.Range] = l.HighWatermark
	}
	read := harness.ReadAll(w.t, w.c.Bootstrap(), topic, ends)
	// Retention goes on while it is read.
	if err := harness.Within(calm, func() (err error) { leases, err = w.c.Leases(topic); return err }); err != nil {
		return err
	}
	for _, l := range leases {
		starts[l.Range] = l.LogStart
	}
	acks := slices.DeleteFunc(w.load.acks(topic), func(a harness.Ack) bool { return a.Offset < starts[a.Range] })
	hold := harness.CheckLedger
	if topic == plain {
		hold = harness.CheckPlainLedger
	}
	errs := []error{hold(acks, read), w.samesOnDisk(leases)}
	stale := 0
	if o := w.load.observers[topic]; o != nil {
		grants, err := w.grants(topic, len(leases))
		if err != nil {
			return err
		}
		stale = o.ForgiveStarts(func(r int32, asked time.Time) bool { return justGranted(grants[r], asked, w.stoodStill()) })
		errs = append(errs, o.Breaches(read)...)
	}
	*checks = append(*checks, fmt.Sprintf("%s K1-K5 %d acknowledged, %d stale starts", topic, len(acks), stale))
	if topic == exact {
		errs = append(errs, w.checkHistories(read, checks))
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("%s: %w", topic, err)
		}
	}
	return errors.Join(errs...)
}

// samesOnDisk is K5. A segment may have been deleted by retention while it was read: then once more.
func (w *world) samesOnDisk(leases []harness.Lease) error {
	return harness.Within(calm, func() error { return w.c.CompareReplicas(leases) })
}

// checkHistories looks for an order of all that the clients of exact did and saw since the last check.
func (w *world) checkHistories(read []harness.Read, checks *[]string) error {
	grants, err := w.grants(exact, exactRanges)
	if err != nil {
		return err
	}
	final := make([][]uint64, exactRanges)
	for _, r := range read {
		if r.Offset != int64(len(final[r.Range])) {
			return fmt.Errorf("range %d: offset %d was read behind %d records", r.Range, r.Offset, len(final[r.Range]))
		}
		final[r.Range] = append(final[r.Range], r.ID)
	}
	stale := w.load.remember(grants)
	var errs []error
	ops := 0
	for r, h := range w.load.histories {
		ops += h.Len()
		if err := h.Check(final[r], decide); err != nil {
			errs = append(errs, fmt.Errorf("history of range %d: %w", r, err))
		}
	}
	*checks = append(*checks, fmt.Sprintf("histories %d operations, %d stale ends", ops, stale))
	return errors.Join(errs...)
}

// grants asks for the last leases of each range of a topic.
func (w *world) grants(topic string, ranges int) ([][]grant, error) {
	out := make([][]grant, ranges)
	for r := range out {
		err := harness.Within(calm, func() error {
			d, err := w.c.Running()[0].LeaseDetail(topic, int32(r))
			if err != nil {
				return err
			}
			out[r] = nil
			for _, c := range d.Changes {
				out[r] = append(out[r], grant{c.Epoch, w.unstepped(c.At)})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// stoodStill is for how long the machine stood still since the round began.
func (w *world) stoodStill() time.Duration { return harness.StoodStill() - w.stoodBefore }

// unstepped gives a moment as an unstepped clock told it. A stamp is by the clock of whoever proposed the change, which may have
// been stepped by more than a life lasts: what lies outside the life was.
func (w *world) unstepped(stamp time.Time) time.Time {
	const margin = 10 * time.Minute
	if by := time.Duration(w.stepped.Load()) * time.Millisecond; stamp.Before(w.began.Add(-margin)) || stamp.After(time.Now().Add(margin)) {
		return stamp.Add(-by)
	}
	return stamp
}

// checkGroups waits until each group has committed all of exact, and holds that nothing it committed went back.
func (w *world) checkGroups(ends map[int32]int64, checks *[]string) error {
	var errs []error
	acks := w.load.acks(exact)
	commits := 0
	for _, m := range w.load.groups {
		errs = append(errs, harness.Within(calm, func() error { return m.Reached(ends, acks) }))
		errs = append(errs, m.Breaches()...)
		n, _, _ := m.Counts()
		commits += n
	}
	*checks = append(*checks, fmt.Sprintf("groups %d commits", commits))
	return errors.Join(errs...)
}

// nothingLeft waits until no node has pins, files without a name, or directories of replicas that it should not have.
func (w *world) nothingLeft() error {
	return harness.Within(calm, func() error {
		var pins []adminapi.Pin
		if err := w.c.Running()[0].Get("/v1/pins", &pins); err != nil || len(pins) > 0 {
			return fmt.Errorf("pins left: %+v (%v)", pins, err)
		}
		leases, err := w.c.Leases("")
		if err != nil {
			return err
		}
		for _, n := range w.c.Nodes {
			if files, size := n.UnlinkedFiles(); len(files) > 0 {
				return fmt.Errorf("%s holds files without a name open, %d bytes: %v", n.Name, size, files)
			}
			want := 0
			for _, l := range leases {
				if slices.ContainsFunc(l.Replicas, func(r harness.Replica) bool { return r.Node == n.Name }) {
					want++
				}
			}
			dirs, err := filepath.Glob(filepath.Join(n.Dir, "store", "ranges", "*"))
			if err != nil || len(dirs) != want {
				return fmt.Errorf("%s has %d directories of ranges, and replicas of %d: %v (%v)", n.Name, len(dirs), want, dirs, err)
			}
		}
		return nil
	})
}

// held is what a node's process holds.
type held struct{ goroutines, files float64 }

func (w *world) holds() (map[string]held, error) {
	out := map[string]held{}
	for _, n := range w.c.Nodes {
		g, err := n.Metric("go_goroutines")
		f, err2 := n.Metric("process_open_fds")
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		out[n.Name] = held{g, f}
	}
	return out, nil
}

// Allowances of a node that is idle again over what it held when it was new: it may lead and follow more than then, and its
// logs have more segments.
const (
	moreGoroutines = 60
	moreFiles      = 40 // beside one for each segment
)

// backTo waits, without clients, until every node holds about what it did before there were any.
func (w *world) backTo(before map[string]held) (map[string]held, error) {
	var now map[string]held
	err := harness.Within(calm, func() (err error) {
		if now, err = w.holds(); err != nil {
			return err
		}
		for name, h := range now {
			segments, err := filepath.Glob(filepath.Join(w.c.Node(name).Dir, "store", "ranges", "*", "*.log"))
			if err != nil {
				return err
			}
			if b := before[name]; h.goroutines > b.goroutines+moreGoroutines || h.files > b.files+moreFiles+float64(len(segments)) {
				return fmt.Errorf("%s has %.0f goroutines and %.0f open files without clients, it had %.0f and %.0f before there were any", name, h.goroutines, h.files, b.goroutines, b.files)
			}
		}
		return nil
	})
	return now, err
}
