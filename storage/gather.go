package storage

import (
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop/storage/vfs"
)

const (
	// gatherWarm is how long after a crowd flushes are still gathered, so that a crowd whose clients all wait for an
	// answer is one again when they are back.
	gatherWarm = 20 * time.Millisecond
	// A round that takes longer than gatherSlow had much to write that others left in the page cache. Then each syncs for
	// itself for a while: gatherMinPause, doubling up to gatherMaxPause while the next round is slow again.
	gatherSlow     = 250 * time.Millisecond
	gatherMinPause = time.Second
	gatherMaxPause = time.Minute
)

// gather makes the files of many logs durable with one sync of their file system, where so many flushers want to sync at
// the same time that a sync of each would be dearer. Below the threshold each syncs for itself.
//
// A flusher calls enter, writes, and calls sync (or leave, if it gives up). While a round forms or runs nobody enters:
//
//   - The first that is to be gathered opens a round, and the door closes. Those inside finish: they join, sync for
//     themselves, or give up. The last of them runs the round's sync. Whoever came to the door meanwhile is let in when
//     it has ended, all at once.
//   - So a round is for those whose bytes were written out before its sync began, and for nobody else; and no log has
//     written bytes without a place on the disk while it runs, which it might lose without a word (see vfs.Syncer).
//   - An error of the round's sync is the error of every log of the round, as if its own sync had failed. It is the last
//     round of this store: who was at the door syncs for itself, and so does everybody from then on.
//
// Nobody inside waits for anything but the disk, so a round always comes to its sync; and each flusher has one of
// Store.ioSlots all the time, which bounds a round.
type gather struct {
	// Set once.
	threshold int
	clock     func() time.Duration
	log       hclog.Logger
	// open makes rounds possible, in the background; nil for never.
	open func()

	// mu is never held across I/O or a wait.
	mu sync.Mutex
	// fs is nil while rounds are not possible: not yet, or no more. wanted is true from the first crowd on: a store that
	// sees none opens nothing.
	fs     vfs.Syncer
	wanted bool
	// opened is what close closes.
	opened vfs.Syncer
	// inside counts the flushers that have entered and not yet joined, synced or left; demand those too that wait at the
	// door or for a round.
	inside, demand int
	// round forms or runs; nil if none does.
	round *gatherRound
	// warm and paused are until when flushes are gathered though few, and not gathered though many; pause is how long the
	// last pause was, 0 if a round since was not slow.
	warm, paused, pause time.Duration
}

type gatherRound struct {
	members, atDoor int
	// done is closed when the sync has ended; err is set before.
	done chan struct{}
	err  error
}

// enter comes before the writes of a flush. It waits while a round forms or runs.
func (g *gather) enter() {
	g.mu.Lock()
	g.demand++
	r := g.round
	if r == nil {
		g.inside++
		g.mu.Unlock()
		return
	}
	r.atDoor++ // run lets it in
	g.mu.Unlock()
	<-r.done
}

// leave ends a flush without a round.
func (g *gather) leave() {
	g.mu.Lock()
	g.demand--
	r := g.goLocked()
	g.mu.Unlock()
	if r != nil {
		g.run(r)
	}
}

// goLocked counts one less inside, and returns the round that waited for it.
func (g *gather) goLocked() *gatherRound {
	if g.inside--; g.inside == 0 {
		return g.round
	}
	return nil
}

// sync ends a flush: it returns when what was written to the file since enter is durable. After an error the file
// may not be synced again.
func (g *gather) sync(h *handle) error {
	if !g.gathers(h) {
		err := h.file.SyncData()
		g.leave()
		return err
	}
	if err := h.file.WriteOut(); err != nil {
		g.leave()
		return err
	}
	g.mu.Lock()
	if g.round == nil {
		g.round = &gatherRound{done: make(chan struct{})}
	}
	r := g.round
	r.members++
	last := g.goLocked() != nil
	g.mu.Unlock()
	if last {
		g.run(r)
	} else {
		<-r.done
	}
	return r.err
}

// gathers reports whether a flusher that is inside is to join a round.
func (g *gather) gathers(h *handle) bool {
	g.mu.Lock()
	fs, many := g.fs, g.demand >= g.threshold
	if g.warm > 0 || g.paused > 0 {
		now := g.clock()
		many = many && now >= g.paused || now < g.warm
		if now >= g.warm {
			g.warm = 0
		}
		if now >= g.paused {
			g.paused = 0
		}
	}
	open := many && !g.wanted && g.open != nil
	g.wanted = g.wanted || many
	g.mu.Unlock()
	if open {
		g.open()
	}
	if fs == nil || !many {
		return false
	}
	if h.covered == notAsked {
		h.covered = notCovered
		if fs.Covers(h.file) {
			h.covered = isCovered
		}
	}
	return h.covered == isCovered
}

// run makes a round durable. Nobody is inside.
func (g *gather) run(r *gatherRound) {
	g.mu.Lock()
	fs := g.fs
	g.mu.Unlock()
	began := g.clock()
	r.err = fs.Sync()
	now := g.clock()
	took := now - began
	slow := took > gatherSlow
	g.mu.Lock()
	switch {
	case r.err != nil:
		g.fs = nil
	case slow:
		g.pause = min(max(2*g.pause, gatherMinPause), gatherMaxPause)
		g.warm, g.paused = 0, now+g.pause
	default:
		g.pause = 0
		if g.demand >= g.threshold {
			g.warm = now + gatherWarm
		}
	}
	g.round = nil
	g.demand -= r.members
	g.inside = r.atDoor
	g.mu.Unlock()
	close(r.done)
	switch {
	case r.err != nil:
		g.log.Error("a sync for many logs has failed; from now on each log syncs for itself", "logs", r.members, "error", r.err)
	case slow:
		g.log.Debug("a sync for many logs was slow", "logs", r.members, "took", took)
	}
}

// openGather makes rounds possible, if the file system has such a sync. It is called by a flusher, and does not wait.
func (s *Store) openGather() {
	s.flushers.Add(1)
	go s.findSyncer()
}

// findSyncer may take as long as a sync.
func (s *Store) findSyncer() {
	defer s.flushers.Done()
	all, err := s.fs.SyncFS(filepath.Join(s.dir, rangesDir))
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		s.log.Debug("syncs of many logs are not gathered", "reason", err)
	case err != nil:
		s.log.Warn("syncs of many logs are not gathered", "error", err)
	default:
		s.gather.mu.Lock()
		s.gather.fs, s.gather.opened = all, all
		s.gather.mu.Unlock()
	}
}

// close is for the end of the store, when no flusher runs.
func (g *gather) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.opened
	if g.fs, g.opened = nil, nil; all == nil {
		return nil
	}
	return all.Close()
}
