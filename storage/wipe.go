package storage

import (
	"fmt"
	"path/filepath"

	"github.com/vtop-log/vtop"
)

// Wipe takes the directory of a replica away behind everybody's back, the open log included, as an accident would: for
// drills. The journal goes on knowing the replica, so that the next Open misses it and tells it lost (I10); its files are
// removed then. The caller ends the process at once, for what is appended meanwhile goes to where nothing finds it.
// vtop.ErrUnknownRange if there is no replica.
func (s *Store) Wipe(r vtop.Range) error {
	l := s.Get(r)
	if l == nil {
		return fmt.Errorf("wipe range %s: no replica here: %w", r, vtop.ErrUnknownRange)
	}
	to, err := freeName(s.fs, filepath.Join(s.dir, trashDir), dirName(r))
	if err != nil {
		return err
	}
	s.log.Warn("a drill takes the directory of a replica away", "range", r, "replica", l.ReplicaID(), "to", to)
	if err := s.fs.Rename(l.dir, to); err != nil {
		return fmt.Errorf("%w: wipe range %s: %w", vtop.ErrStorage, r, err)
	}
	return nil
}
