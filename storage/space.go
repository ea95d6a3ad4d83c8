package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/vtop-log/vtop"
)

// Admits returns nil, or vtop.ErrNoSpace while free space, less what is buffered, is under the reserve that is
// kept for promises, manifests, log-start moves and the metadata. Cheap: memory only.
func (s *Store) Admits() error {
	free, reserve, buffered := s.free.Load(), s.reserve.Load(), uint64(max(s.buffered.Load(), 0))
	if free >= reserve+buffered {
		return nil
	}
	return s.noSpace(free, reserve)
}

func (s *Store) noSpace(free, reserve uint64) error {
	return fmt.Errorf("%w: %d bytes are free in %s, %d are kept in reserve", vtop.ErrNoSpace, free, s.dir, reserve)
}

// look measures the free space.
func (s *Store) look() error {
	free, total, err := s.fs.Free(s.dir)
	if err != nil {
		return fmt.Errorf("%w: free space of %s: %w", vtop.ErrStorage, s.dir, err)
	}
	reserve := s.opt.Reserve
	if reserve == 0 {
		reserve = max(min(total/20, maxReserve), minReserve)
	}
	before := s.free.Swap(free)
	if s.reserve.Swap(reserve) == 0 {
		before = free
	}
	switch {
	case free < reserve && before >= reserve:
		s.log.Error("the disk is nearly full: nothing is admitted until space is freed", "free", free, "reserve", reserve)
	case free >= reserve && before < reserve:
		s.log.Info("the disk has room again", "free", free, "reserve", reserve)
	}
	return nil
}

// Probe proves the disk by a small write and sync of a file of its own, and looks at the free space. It returns
// when the disk has answered, or the cause of ctx; a probe that hangs goes on, and the next Probe waits for the
// same one, so that a hung disk costs one goroutine. A full disk is no error of Probe: see Admits.
func (s *Store) Probe(ctx context.Context) error {
	s.probeMu.Lock()
	if s.probing == nil {
		s.probing = make(chan struct{})
		s.background.Add(1)
		go s.runProbe(s.probing)
	}
	done := s.probing
	s.probeMu.Unlock()
	select {
	case <-done:
		s.probeMu.Lock()
		defer s.probeMu.Unlock()
		return s.probed
	case <-ctx.Done():
		return fmt.Errorf("%w: the disk of %s does not answer: %w", vtop.ErrStorage, s.dir, context.Cause(ctx))
	}
}

func (s *Store) runProbe(done chan struct{}) {
	defer s.background.Done()
	err := errors.Join(s.probeOnce(), s.look())
	s.probeMu.Lock()
	s.probed, s.probing = err, nil
	s.probeMu.Unlock()
	close(done)
}

// probeOnce writes a new file each time: a failed sync is never asked again of the same one.
func (s *Store) probeOnce() error {
	f, err := s.fs.Create(filepath.Join(s.dir, probeName))
	if err == nil {
		_, err = f.WriteAt([]byte("vtop probes its disk\n"), 0)
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("%w: probe of %s: %w", vtop.ErrStorage, s.dir, err)
	}
	return nil
}
