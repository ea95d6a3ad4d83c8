package vtop

import (
	"encoding/hex"
	"fmt"
	"strconv"
)

// NodeName is the configured name of a node: the operator's word for one vtopd process and its data directory.
type NodeName string

// BrokerID is the number by which Kafka clients know a node. The state machine gives it out once per name,
// from 1 upwards; 0 means none.
type BrokerID int32

// Incarnation counts the starts of one data directory. A lease is bound to it (I5). 0 means none.
type Incarnation uint64

// ReplicaID is one life of one replica, given out by the state machine and never reused (I10). 0 means none.
type ReplicaID uint64

// Offset is the position of a record in its range.
type Offset int64

// Epoch is the fencing number of a lease; Kafka clients see it as the leader epoch. The first grant of a
// range is 1 or more; NoEpoch means none.
type Epoch int32

// NoEpoch is the epoch of a range that was never granted.
const NoEpoch Epoch = 0

// UUID is a random identity: of a cluster, a storage directory or a topic.
type UUID [16]byte

// ClusterID names one cluster for ever; StorageID one data directory; TopicID one life of a topic name.
type (
	ClusterID = UUID
	StorageID = UUID
	TopicID   = UUID
)

// IsZero reports whether u was never set.
func (u UUID) IsZero() bool { return u == UUID{} }

// String gives the usual 8-4-4-4-12 form.
func (u UUID) String() string {
	s := hex.EncodeToString(u[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// ParseUUID reads what String writes. It refuses anything else.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, fmt.Errorf("uuid %q: want the form 8-4-4-4-12 in hexadecimal", s)
	}
	raw := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(u[:], []byte(raw)); err != nil {
		return UUID{}, fmt.Errorf("uuid %q: %w", s, err)
	}
	return u, nil
}

// Range identifies one range of one life of a topic. It is comparable and serves as a map key.
type Range struct {
	Topic TopicID
	Index int32
}

// String gives topic-id/index. People are shown topic-name/index, which only the state machine knows.
func (r Range) String() string { return r.Topic.String() + "/" + strconv.Itoa(int(r.Index)) }

// Compare orders ranges by topic id, then index.
func (r Range) Compare(o Range) int {
	for i := range r.Topic {
		if r.Topic[i] != o.Topic[i] {
			return int(r.Topic[i]) - int(o.Topic[i])
		}
	}
	switch {
	case r.Index < o.Index:
		return -1
	case r.Index > o.Index:
		return 1
	}
	return 0
}

// Lease is the right to lead a range, as the state machine gave it. The zero Lease is no lease.
type Lease struct {
	Range       Range
	Holder      NodeName
	Incarnation Incarnation
	Epoch       Epoch
}

// HeldBy reports whether this process, and no earlier life of it (I5), holds the lease.
func (l Lease) HeldBy(n NodeName, i Incarnation) bool {
	return l.Holder != "" && l.Holder == n && l.Incarnation == i
}

// Replica is one node's copy of a range as the metadata names it.
type Replica struct {
	Node NodeName
	ID   ReplicaID
}
