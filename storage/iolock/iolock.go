// Package iolock implements a Mutex that is held across I/O. Who waits for it waits at a channel, so that in a bubble of
// virtual time (testing/synctest) a goroutine that waits for one that waits for a disk counts as waiting, and time goes on. For
// what is held across memory only, sync.Mutex is the quicker one.
package iolock

import "sync"

// Mutex is a mutual exclusion lock. The zero Mutex is unlocked. It must not be copied after its first use.
type Mutex struct {
	once sync.Once
	held chan struct{} // full: held
}

func (m *Mutex) channel() chan struct{} {
	m.once.Do(func() { m.held = make(chan struct{}, 1) })
	return m.held
}

// Lock waits until nobody else holds m, and takes it.
func (m *Mutex) Lock() { m.channel() <- struct{}{} }

// TryLock takes m if nobody holds it, and reports whether it did.
func (m *Mutex) TryLock() bool {
	select {
	case m.channel() <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock gives m up. It panics if nobody holds it.
func (m *Mutex) Unlock() {
	select {
	case <-m.channel():
	default:
		panic("iolock: unlock of an unlocked Mutex")
	}
}
