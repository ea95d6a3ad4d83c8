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
	"github.com/vtop-log/vtop/storage/vfs"
)

const (
	bornFile      = "cluster.json"
	bornVersion   = 1
	maxBornFile   = 64 << 10
	maxMembers    = 64
	maxVoters     = 5
	maxTextLength = 255
)

// member is one node of a birth, as it said of itself. A node that lost its disk says something else and is
// therefore another member.
type member struct {
	Name     vtop.NodeName `json:"name"`
	Storage  string        `json:"storage_id"`
	ServerID string        `json:"server_id"`
	Peer     string        `json:"peer_addr"`
}

// sameDisk compares what cannot change while the disk is there; the address can.
func (m member) sameDisk(o member) bool {
	return m.Name == o.Name && m.Storage == o.Storage && m.ServerID == o.ServerID
}

// birth is one attempt to found a cluster: its id, minted by the coordinator, and its whole first voter set.
type birth struct {
	Cluster     string        `json:"cluster_id"`
	Coordinator vtop.NodeName `json:"coordinator"`
	Members     []member      `json:"members"`
}

func (b *birth) member(name vtop.NodeName) (member, bool) {
	i := slices.IndexFunc(b.Members, func(m member) bool { return m.Name == name })
	if i < 0 {
		return member{}, false
	}
	return b.Members[i], true
}

// has reports whether the disk is one of the founders.
func (b *birth) has(disk member) bool {
	f, ok := b.member(disk.Name)
	return ok && f.sameDisk(disk)
}

// String names a birth for logs and refusals.
func (b *birth) String() string {
	names := make([]string, len(b.Members))
	for i, m := range b.Members {
		names[i] = string(m.Name)
	}
	return fmt.Sprintf("cluster %s by %q with %s", b.Cluster, b.Coordinator, strings.Join(names, ", "))
}

// validate checks a birth that came from disk or from a peer.
func (b *birth) validate() error {
	if _, err := vtop.ParseUUID(b.Cluster); err != nil {
		return fmt.Errorf("birth: cluster id: %w", err)
	}
	if len(b.Members) == 0 || len(b.Members) > maxMembers {
		return fmt.Errorf("birth of cluster %s: %d members, want 1 to %d", b.Cluster, len(b.Members), maxMembers)
	}
	seen := map[vtop.NodeName]bool{}
	for _, m := range b.Members {
		switch {
		case m.Name == "" || m.ServerID == "" || m.Peer == "" || m.Storage == "":
			return fmt.Errorf("birth of cluster %s: member %q lacks a name, storage id, server id or address", b.Cluster, m.Name)
		case len(m.Name) > maxTextLength || len(m.ServerID) > 2*maxTextLength || len(m.Peer) > maxTextLength || len(m.Storage) > maxTextLength:
			return fmt.Errorf("birth of cluster %s: member with a text over its limit", b.Cluster)
		case seen[m.Name]:
			return fmt.Errorf("birth of cluster %s: two members are named %q", b.Cluster, m.Name)
		}
		seen[m.Name] = true
	}
	if !seen[b.Coordinator] {
		return fmt.Errorf("birth of cluster %s: coordinator %q is not among the members", b.Cluster, b.Coordinator)
	}
	return nil
}

// bornState is what a node knows for ever about the birth of its cluster. It is written and fsynced before
// anyone is told.
//
// The life of it: nothing; then Pledge (the node takes part in one birth and no other); then Cluster (the birth
// was decided, or a cluster was found and joined). A pledge is dropped only if it is proven void: its coordinator
// itself says that it is not founding that cluster. A cluster is never dropped.
type bornState struct {
	Version int `json:"version"`
	// Pledge is the birth that the node takes part in; once there is a cluster, how that was born, if known.
	Pledge  *birth `json:"pledge,omitempty"`
	Cluster string `json:"cluster_id,omitempty"`
	// Founder: this node is a member of the birth in Pledge, which became Cluster, and bootstraps Raft with it.
	Founder bool `json:"founder,omitempty"`
	// Generation counts recoveries from a lost metadata quorum; 1 at birth.
	Generation uint64 `json:"generation,omitempty"`
}

// bornStore keeps bornState in a file. All methods may be called by many goroutines.
type bornStore struct {
	fs   vfs.FS
	path string

	mu    sync.Mutex
	state bornState
	// broken is the first error of a write: the file then holds the old or the new, and only a new start tells which.
	broken error
}

func openBorn(fsys vfs.FS, dir string) (*bornStore, error) {
	if err := vfs.MkdirAllSync(fsys, dir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	s := &bornStore{fs: fsys, path: filepath.Join(dir, bornFile), state: bornState{Version: bornVersion}}
	raw, err := vfs.ReadFile(fsys, s.path, maxBornFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if s.state, err = decodeBorn(raw); err != nil {
		return nil, fmt.Errorf("%s: %w: it says which cluster this node belongs to; restore it, or start with an empty data directory", s.path, err)
	}
	return s, nil
}

func decodeBorn(raw []byte) (bornState, error) {
	var st bornState
	if err := json.Unmarshal(raw, &st); err != nil {
		return st, fmt.Errorf("%w: %v", vtop.ErrDamaged, err)
	}
	if st.Version != bornVersion {
		return st, fmt.Errorf("version %d, this binary knows %d", st.Version, bornVersion)
	}
	if st.Pledge != nil {
		if err := st.Pledge.validate(); err != nil {
			return st, fmt.Errorf("%w: %v", vtop.ErrDamaged, err)
		}
	}
	if st.Cluster != "" {
		if _, err := vtop.ParseUUID(st.Cluster); err != nil {
			return st, fmt.Errorf("%w: %v", vtop.ErrDamaged, err)
		}
	}
	if st.Founder && (st.Pledge == nil || st.Pledge.Cluster != st.Cluster) {
		return st, fmt.Errorf("%w: a founder without the birth it took part in", vtop.ErrDamaged)
	}
	return st, nil
}

// get returns the state; its Pledge is never edited in place.
func (s *bornStore) get() bornState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// update applies fn to a copy and, if fn allows it, makes it durable and then current. It returns what is
// current afterwards. The lock is held over the fsync on purpose: two answers about one pledge must not cross.
func (s *bornStore) update(fn func(*bornState) error) (bornState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.state, s.broken
	}
	next := s.state
	if err := fn(&next); err != nil {
		return s.state, err
	}
	raw, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return s.state, err
	}
	if err := vfs.WriteFileAtomic(s.fs, s.path, append(raw, '\n')); err != nil {
		s.broken = fmt.Errorf("keep the birth of the cluster: %w: %w", vtop.ErrStorage, err)
		return s.state, s.broken
	}
	s.state = next
	return s.state, nil
}

// errPledged: the node is pledged to another birth, or has a cluster.
var errPledged = errors.New("already pledged")

// pledge takes part in b, as the member self. A repeat is granted again. A pledge to another birth stands,
// unless the same coordinator asks anew: it alone decides a birth, and by asking says that the earlier one is
// void, either given up undecided or lost with its disk. Had it been decided and this node been told, this node
// would have a cluster and refuse.
func (s *bornStore) pledge(b *birth, self member) (bornState, error) {
	return s.update(func(st *bornState) error {
		if st.Cluster != "" {
			return fmt.Errorf("%w: node %q belongs to cluster %s", errPledged, self.Name, st.Cluster)
		}
		if m, ok := b.member(self.Name); !ok || !m.sameDisk(self) {
			return fmt.Errorf("%w: the birth of %s names node %q with storage %s and server %s, this node has storage %s and server %s",
				errPledged, b, self.Name, m.Storage, m.ServerID, self.Storage, self.ServerID)
		}
		if st.Pledge != nil && st.Pledge.Cluster != b.Cluster && st.Pledge.Coordinator != b.Coordinator {
			return fmt.Errorf("%w: node %q is pledged to %s", errPledged, self.Name, st.Pledge)
		}
		st.Pledge = b
		return nil
	})
}

// void drops the pledge to cluster, if that is still the one and was not decided.
func (s *bornStore) void(cluster string) error {
	_, err := s.update(func(st *bornState) error {
		if st.Cluster != "" || st.Pledge == nil || st.Pledge.Cluster != cluster {
			return nil
		}
		st.Pledge = nil
		return nil
	})
	return err
}

// decide makes the pledged birth the node's cluster: by the coordinator once all members pledged, by a member
// once it saw the cluster. It refuses if the pledge moved meanwhile.
func (s *bornStore) decide(cluster string) (bornState, error) {
	return s.update(func(st *bornState) error {
		if st.Cluster == cluster {
			return nil
		}
		if st.Cluster != "" || st.Pledge == nil || st.Pledge.Cluster != cluster {
			return fmt.Errorf("%w: not to cluster %s", errPledged, cluster)
		}
		st.Cluster, st.Founder, st.Generation = cluster, true, 1
		return nil
	})
}

// join makes a found cluster the node's own. b is how it was born, if the one who told knows it; a disk that is
// among its founders becomes one, even if it had dropped its pledge meanwhile, because nothing else can have come
// of that pledge. A node pledged to a birth that may still be decided must not join another.
func (s *bornStore) join(cluster string, generation uint64, b *birth, self member) (bornState, error) {
	return s.update(func(st *bornState) error {
		switch {
		case st.Cluster == cluster:
			return nil
		case st.Cluster != "":
			return fmt.Errorf("%w: this node belongs to cluster %s, not to %s", errPledged, st.Cluster, cluster)
		case st.Pledge != nil && st.Pledge.Cluster != cluster:
			return fmt.Errorf("%w: to %s, which may still be born; cluster %s is not joined before that is settled", errPledged, st.Pledge, cluster)
		}
		if st.Pledge == nil && b != nil && b.Cluster == cluster {
			st.Pledge = b
		}
		if st.Pledge != nil {
			st.Founder = st.Pledge.has(self)
		}
		st.Cluster, st.Generation = cluster, max(generation, 1)
		return nil
	})
}
