package storage

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

const identityName = "identity"

// Identity is who the data directory is.
type Identity struct {
	// Storage was made once, with the directory.
	Storage vtop.StorageID
	// Cluster is zero until SetCluster.
	Cluster vtop.ClusterID
	// Incarnation was counted up, durably, when the store was opened (I5).
	Incarnation vtop.Incarnation
}

func (id Identity) encode() []byte {
	b := append([]byte(nil), id.Storage[:]...)
	b = append(b, id.Cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(id.Incarnation))
	return encodeSmall(magicIdentity, b)
}

func decodeIdentity(data []byte) (Identity, error) {
	payload, err := decodeSmall(magicIdentity, data)
	if err != nil {
		return Identity{}, err
	}
	r := reader{b: payload}
	id := Identity{Storage: r.uuid(), Cluster: r.uuid(), Incarnation: vtop.Incarnation(r.u64())}
	if err := r.done(); err != nil {
		return Identity{}, err
	}
	if id.Storage.IsZero() || id.Incarnation == 0 {
		return Identity{}, fmt.Errorf("%w: storage id or incarnation is zero", vtop.ErrDamaged)
	}
	return id, nil
}

// readIdentity returns the identity of the directory, or a zero one and why there is none.
func readIdentity(fsys vfs.FS, dir string) (id Identity, missing error, err error) {
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, identityName), maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, errors.New("the file identity is missing"), nil
	}
	if err != nil {
		return Identity{}, nil, fmt.Errorf("read identity: %w", err)
	}
	if id, err = decodeIdentity(data); err != nil {
		return Identity{}, fmt.Errorf("the file identity is damaged: %w", err), nil
	}
	return id, nil, nil
}

func newStorageID() (vtop.StorageID, error) {
	var id vtop.StorageID
	if _, err := rand.Read(id[:]); err != nil {
		return id, fmt.Errorf("make a storage id: %w", err)
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id, nil
}

// Identity returns who this data directory is. Durable.
func (s *Store) Identity() Identity {
	s.identityMu.Lock()
	defer s.identityMu.Unlock()
	return s.identity
}

// SetCluster writes the cluster id, once: another one than before is refused. Durable when it returns nil.
func (s *Store) SetCluster(id vtop.ClusterID) error {
	return s.updateIdentity(func(now *Identity) error {
		if id.IsZero() || !now.Cluster.IsZero() && now.Cluster != id {
			return fmt.Errorf("data directory %s belongs to cluster %s, not to %s: use an empty directory", s.dir, now.Cluster, id)
		}
		now.Cluster = id
		return nil
	})
}

// SetIncarnation raises the incarnation, when the metadata knows a higher one than the disk: the disk is an old
// copy. The caller then calls LoseAll. Durable when it returns nil; refuses to go down.
func (s *Store) SetIncarnation(n vtop.Incarnation) error {
	return s.updateIdentity(func(now *Identity) error {
		if n < now.Incarnation {
			return fmt.Errorf("incarnation %d asked, the data directory is at %d", n, now.Incarnation)
		}
		now.Incarnation = n
		return nil
	})
}

// updateIdentity writes a changed identity before anyone sees it.
func (s *Store) updateIdentity(change func(*Identity) error) error {
	s.identityMu.Lock()
	defer s.identityMu.Unlock()
	next := s.identity
	if err := change(&next); err != nil || next == s.identity {
		return err
	}
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, identityName), next.encode()); err != nil {
		return fmt.Errorf("%w: %w", vtop.ErrStorage, err)
	}
	s.identity = next
	return nil
}
