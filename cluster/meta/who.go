package meta

import (
	"sync"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
)

// Who is the node's identity as it becomes known. The transport asks it with every connection; Meta writes to
// it. It is made before both.
type Who struct {
	mu   sync.RWMutex
	self transport.Self
}

// NewWho starts with what the data directory and the configuration say.
func NewWho(name vtop.NodeName, storage vtop.StorageID, incarnation vtop.Incarnation) *Who {
	return &Who{self: transport.Self{Name: name, Storage: storage, Incarnation: incarnation}}
}

// Self is transport.Options.Self.
func (w *Who) Self() transport.Self {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.self
}

func (w *Who) update(fn func(*transport.Self)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn(&w.self)
}
