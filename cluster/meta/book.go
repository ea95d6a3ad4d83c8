package meta

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage/vfs"
)

const (
	bookFile    = "peers.json"
	bookVersion = 1
	maxBook     = 1 << 20
	maxEntries  = fsm.MaxNodes
)

// peer is what this node last heard of another: where it is, and in which life.
type peer struct {
	Name        vtop.NodeName    `json:"name"`
	Storage     string           `json:"storage_id"`
	ServerID    string           `json:"server_id"`
	Incarnation vtop.Incarnation `json:"incarnation"`
	Addresses   fsm.Addresses    `json:"addresses"`
}

// book remembers where peers were last seen. It is a hint: the connection says who really answers. It is kept
// on disk so that a node started again without --join finds its cluster, and it is written when it changes and
// without haste: an old one costs a question to an address that does not answer.
//
// For one Raft server the higher incarnation wins, and the later word among equals; so a node that came back
// elsewhere is found there, and one that speaks from the past is not believed.
type book struct {
	fs   vfs.FS
	path string

	mu sync.Mutex
	// peers are kept by Raft server id: two nodes that claim one name are two entries.
	peers map[string]peer
	dirty bool
}

type bookState struct {
	Version int    `json:"version"`
	Peers   []peer `json:"peers"`
}

// openBook reads the file if it is there; one that cannot be read is forgotten, since it only holds hints.
func openBook(fsys vfs.FS, dir string) (*book, error) {
	b := &book{fs: fsys, path: filepath.Join(dir, bookFile), peers: map[string]peer{}}
	raw, err := vfs.ReadFile(fsys, b.path, maxBook)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return b, err
	}
	var st bookState
	if err := json.Unmarshal(raw, &st); err != nil || st.Version != bookVersion {
		return b, fmt.Errorf("%s: not readable (version %d, %v); starting without remembered peers", b.path, st.Version, err)
	}
	for _, p := range st.Peers {
		b.learn(p)
	}
	b.dirty = false
	return b, nil
}

// learn notes what was heard and reports whether it was news.
func (b *book) learn(p peer) bool {
	if p.Name == "" || p.ServerID == "" || p.Addresses.Peer == "" ||
		len(p.Name) > maxTextLength || len(p.ServerID) > 2*maxTextLength || len(p.Addresses.Peer) > maxTextLength {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old, known := b.peers[p.ServerID]
	if known && old.Incarnation > p.Incarnation {
		return false
	}
	if known {
		// Gossip does not tell all addresses; what is not told stays.
		p.Addresses = mergeAddresses(p.Addresses, old.Addresses)
		if p == old {
			return false
		}
	} else {
		b.forgetLocked(p)
		if len(b.peers) >= maxEntries {
			return false
		}
	}
	b.peers[p.ServerID] = p
	b.dirty = true
	return true
}

// forgetLocked drops the servers that p is the successor of: the same data directory earlier, or the same name at
// the same address.
func (b *book) forgetLocked(p peer) {
	for id, old := range b.peers {
		if old.Name == p.Name && (old.Addresses.Peer == p.Addresses.Peer || old.Storage == p.Storage && old.Incarnation < p.Incarnation) {
			delete(b.peers, id)
		}
	}
}

func mergeAddresses(news, old fsm.Addresses) fsm.Addresses {
	for _, f := range []struct{ n, o *string }{
		{&news.Kafka, &old.Kafka}, {&news.Peer, &old.Peer}, {&news.Gossip, &old.Gossip}, {&news.Admin, &old.Admin},
	} {
		if *f.n == "" {
			*f.n = *f.o
		}
	}
	return news
}

// byServer finds a peer by its Raft server id.
func (b *book) byServer(id string) (peer, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.peers[id]
	return p, ok
}

// byName finds a peer by its name; of several, the one with the highest incarnation.
func (b *book) byName(name vtop.NodeName) (best peer, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.peers {
		if p.Name == name && (!ok || p.Incarnation > best.Incarnation) {
			best, ok = p, true
		}
	}
	return best, ok
}

// list returns all peers in order of their names.
func (b *book) list() []peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sortedLocked()
}

func (b *book) sortedLocked() []peer {
	out := make([]peer, 0, len(b.peers))
	for _, p := range b.peers {
		out = append(out, p)
	}
	slices.SortFunc(out, func(x, y peer) int { return strings.Compare(x.ServerID, y.ServerID) })
	return out
}

// save writes the file if anything changed since the last time.
func (b *book) save() error {
	b.mu.Lock()
	if !b.dirty {
		b.mu.Unlock()
		return nil
	}
	st := bookState{Version: bookVersion, Peers: b.sortedLocked()}
	b.dirty = false
	b.mu.Unlock()
	raw, err := json.MarshalIndent(st, "", "  ")
	if err == nil {
		err = vfs.WriteFileAtomic(b.fs, b.path, append(raw, '\n'))
	}
	if err != nil {
		b.mu.Lock()
		b.dirty = true
		b.mu.Unlock()
	}
	return err
}
