package sim

import (
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vtop-log/vtop/storage/vfs"
)

// disk is the hook of one process on the file system of its host: how long syncs take, which one fails, and at which call the
// process dies.
type disk struct {
	p *process

	mu     sync.Mutex
	rng    *rand.Rand
	live   bool          // the store is open: syncs take time
	slow   time.Duration // more for each sync
	fail   bool          // the next sync of a log fails
	frozen chan struct{} // the process is paused until this is closed; nil: it runs
	dieIn  int           // changing calls until the process dies; 0: it does not
	died   func()
}

// hook is a vfs.Hook.
func (d *disk) hook(op vfs.Op) error {
	d.mu.Lock()
	frozen := d.frozen
	d.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	d.mu.Lock()
	if d.dieIn > 0 && op.Kind.Changes() {
		if d.dieIn--; d.dieIn == 0 {
			died := d.died
			d.mu.Unlock()
			d.p.dead.Store(true)
			died()
			return vfs.ErrPowerCut
		}
	}
	if d.fail && (op.Kind == vfs.OpSyncFS || op.Kind == vfs.OpSyncData && strings.HasSuffix(op.Name, ".log")) {
		d.fail = false
		d.mu.Unlock()
		d.p.host.life.trace.note("%s: sync fails: %s", d.p.name(), op.Name)
		return syscall.EIO
	}
	wait := time.Duration(0)
	// A staged segment is locked for reading by many, with a lock that virtual time cannot wait for.
	if d.live && op.Kind.IsSync() && !strings.Contains(op.Name, "/staging/") {
		wait = 50*time.Microsecond + time.Duration(d.rng.IntN(600))*time.Microsecond
		if d.slow > 0 {
			wait += time.Duration(d.rng.Int64N(int64(d.slow)))
		}
	}
	d.mu.Unlock()
	time.Sleep(wait)
	return nil
}

func (d *disk) with(fn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn()
}
