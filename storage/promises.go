package storage

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// Promise makes promises durable with one sync for all (I6). It returns one error for each promise, nil if it is
// durable: a *PromiseError if a higher one was made before, vtop.ErrUnknownRange, vtop.ErrReplicaLost (also for
// another replica id), vtop.ErrStorage if the journal could not be written. The same promise again is fine and
// costs nothing once it is durable. From the moment of the call no append of a lower epoch is admitted, whatever is
// returned; so fence by Promise, then Flush, then Position.
func (s *Store) Promise(promises []Promise) []error {
	errs := make([]error, len(promises))
	var entries []entry
	var asked []int
	for i, p := range promises {
		if errs[i] = s.raisePromise(p); errs[i] == nil {
			asked = append(asked, i)
			entries = append(entries, entry{entryPromise, replicaKey{p.Range, p.ReplicaID}, uint64(p.Epoch)})
		}
	}
	if err := s.journal.promise(entries); err != nil {
		for _, i := range asked {
			errs[i] = err
		}
	}
	return errs
}

// raisePromise makes a promise in memory, before it is durable: refusing too much is safe.
func (s *Store) raisePromise(p Promise) error {
	l := s.Get(p.Range)
	if l == nil {
		return fmt.Errorf("promise of epoch %d: %w: no replica of range %s here", p.Epoch, vtop.ErrUnknownRange, p.Range)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.replicaID != p.ReplicaID {
		return fmt.Errorf("promise of epoch %d: %w: replica %d of range %s is asked, this is replica %d", p.Epoch, vtop.ErrReplicaLost, p.ReplicaID, p.Range, l.replicaID)
	}
	if l.state == StateLost || l.state == StateQuarantined || l.shut {
		return l.usableLocked()
	}
	if p.Epoch < l.promised {
		return &PromiseError{Range: p.Range, Asked: p.Epoch, Promised: l.promised}
	}
	l.promised = p.Epoch
	return nil
}
