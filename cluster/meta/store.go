package meta

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// ErrBadRaftDB: raft.db cannot be read. The text names the remedy. Final until an operator acts.
var ErrBadRaftDB = errors.New("raft.db is damaged")

// ErrRaftDBLocked: another process has raft.db open.
var ErrRaftDBLocked = errors.New("raft.db is in use by another process")

const (
	raftDBName    = "raft.db"
	snapshotsName = "snapshots"
	asidePrefix   = "aside-"
	// boltTimeout bounds the wait for the lock on raft.db; without it a second process blocks for ever.
	boltTimeout = time.Second
	// logCacheEntries is the number of recent Raft entries kept in memory, so that replication reads no disk.
	logCacheEntries = 512
	// snapshotsKept is the number of snapshots left on disk.
	snapshotsKept = 2
	serverIDKey   = "vtop-server-id"
)

// stores are the durable parts of a Raft server. They are opened before anything is known of a cluster, since
// the server id is made with raft.db and is part of a pledge.
type stores struct {
	dir       string
	bolt      *raftboltdb.BoltStore
	log       *timedStore
	snapshots *raft.FileSnapshotStore
	serverID  raft.ServerID
	// hasState: Raft wrote something here before.
	hasState atomic.Bool
}

// openStores opens or makes dir/raft.db and dir/snapshots. The server id is "name/random": the name is part of it
// so that whoever reads a Raft configuration knows whose server it is, registered or not.
func openStores(dir string, name vtop.NodeName, log hclog.Logger) (*stores, error) {
	if err := vfs.MkdirAllSync(vfs.OS(), dir); err != nil {
		return nil, fmt.Errorf("raft directory: %w", err)
	}
	bolt, err := openBolt(filepath.Join(dir, raftDBName))
	if err != nil {
		return nil, err
	}
	s := &stores{dir: dir, bolt: bolt, log: newTimedStore(bolt)}
	if err := s.init(name, log); err != nil {
		return nil, errors.Join(err, bolt.Close())
	}
	return s, nil
}

func (s *stores) init(name vtop.NodeName, log hclog.Logger) error {
	if err := vfs.OS().SyncDir(s.dir); err != nil {
		return fmt.Errorf("raft directory: %w", err)
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(s.dir, snapshotsKept, log.Named("snapshot"))
	if err != nil {
		return fmt.Errorf("open Raft snapshots in %s: %w", s.dir, err)
	}
	s.snapshots = snaps
	state, err := raft.HasExistingState(s.bolt, s.bolt, snaps)
	if err != nil {
		return damagedDB(filepath.Join(s.dir, raftDBName), err)
	}
	s.hasState.Store(state)
	if s.serverID, err = s.loadServerID(name); err != nil {
		return err
	}
	if owner := serverName(s.serverID); owner != name {
		return fmt.Errorf("raft directory %s belongs to node %q, this node is configured as %q: use the old name or another data directory",
			s.dir, owner, name)
	}
	return nil
}

func (s *stores) loadServerID(name vtop.NodeName) (raft.ServerID, error) {
	id, err := s.bolt.Get([]byte(serverIDKey))
	switch {
	case err == nil && len(id) > 0:
		return raft.ServerID(id), nil
	case err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound):
		return "", damagedDB(filepath.Join(s.dir, raftDBName), err)
	case s.hasState.Load():
		return "", damagedDB(filepath.Join(s.dir, raftDBName), errors.New("it holds Raft state but no server id"))
	}
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", fmt.Errorf("make a Raft server id: %w", err)
	}
	fresh := string(name) + "/" + hex.EncodeToString(raw[:])
	if err := s.bolt.Set([]byte(serverIDKey), []byte(fresh)); err != nil {
		return "", fmt.Errorf("keep the Raft server id: %w", err)
	}
	return raft.ServerID(fresh), nil
}

// serverName is the node name inside a server id; empty if the id was not made by loadServerID.
func serverName(id raft.ServerID) vtop.NodeName {
	name, _, ok := cutLast(string(id), '/')
	if !ok {
		return ""
	}
	return vtop.NodeName(name)
}

func cutLast(s string, sep byte) (before, after string, ok bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

func (s *stores) close() error { return s.bolt.Close() }

// SetAside moves raft.db and the snapshots of a stopped node out of the way and says where to: the remedy for
// ErrBadRaftDB. At its next start the node is a new Raft server, and syncs from the others; it cannot be undone, since
// the old server is then replaced. The only node of a cluster must not do this: its metadata would be gone.
func SetAside(raftDir string) (string, error) { return setAside(raftDir, time.Now()) }

// setAside moves raft.db and the snapshots into a sub-directory of their own, for an operator to look at, and
// durably so. The stores must be closed. The next openStores makes a new server.
func setAside(dir string, now time.Time) (string, error) {
	aside := filepath.Join(dir, asidePrefix+now.UTC().Format("20060102T150405.000000000"))
	if err := vfs.MkdirAllSync(vfs.OS(), aside); err != nil {
		return "", err
	}
	// raft.db goes first: snapshots without it are set aside by the next attempt, it without snapshots is damage.
	for _, name := range []string{raftDBName, snapshotsName} {
		err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("set %s aside: %w", name, err)
		}
	}
	return aside, errors.Join(vfs.OS().SyncDir(aside), vfs.OS().SyncDir(dir))
}

// openBolt reads every page of an existing file once before it trusts it: what is torn shows here as one clear
// error, and not hours later as a panic of the Raft loop.
func openBolt(path string) (*raftboltdb.BoltStore, error) {
	options := func() *bbolt.Options {
		return &bbolt.Options{Timeout: boltTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
	}
	if err := checkBolt(path, options()); err != nil {
		return nil, err
	}
	var store *raftboltdb.BoltStore
	err := guard(func() (err error) {
		store, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: options()})
		return err
	})
	if err != nil {
		return nil, boltError(path, err)
	}
	return store, nil
}

// checkBolt reads the file without writing. It is opened read-only because bbolt, when it opens for writing
// without a stored free list, walks the pages on a goroutine of its own, whose panics nobody can recover.
func checkBolt(path string, options *bbolt.Options) error {
	options.ReadOnly = true
	// An empty file is one that was being made when the power went; nothing was in it.
	if info, err := os.Stat(path); errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	err := guard(func() error {
		db, err := bbolt.Open(path, 0o600, options)
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(readAll)
	})
	if err != nil {
		return boltError(path, err)
	}
	return nil
}

// readAll touches every key and value, and checks the order of keys, which torn pages break.
func readAll(tx *bbolt.Tx) error {
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		var last []byte
		return b.ForEach(func(k, v []byte) error {
			if last != nil && string(k) <= string(last) {
				return fmt.Errorf("bucket %q: keys out of order", name)
			}
			last = append(last[:0], k...)
			if string(name) == "logs" && len(k) != 8 {
				return fmt.Errorf("bucket %q: key of %d bytes, want 8", name, len(k))
			}
			var sum byte
			for _, c := range v {
				sum ^= c
			}
			_ = sum
			return nil
		})
	})
}

// guard turns a panic of bbolt, which asserts on damaged pages, or a page fault beyond the end of a short file,
// into an error without a stack trace.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return fn()
}

func boltError(path string, err error) error {
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return fmt.Errorf("%s: %w", path, ErrRaftDBLocked)
	case errors.Is(err, os.ErrPermission):
		return err
	}
	return damagedDB(path, err)
}

func damagedDB(path string, cause error) error {
	if noRoom(cause) {
		return fmt.Errorf("%s: %w: nothing is damaged; free space and start again", path, cause)
	}
	text, _, _ := strings.Cut(cause.Error(), "\n")
	return fmt.Errorf("%s: %w (%s): while a majority of the other Raft voters lives, remove the directory %s and start again; this node leaves the vote under its old server id and syncs as a new one, its segments are kept. On the only node keep it: nobody else has the metadata",
		path, ErrBadRaftDB, text, filepath.Dir(path))
}
