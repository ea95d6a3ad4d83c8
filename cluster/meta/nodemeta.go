package meta

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/memberlist"

	"github.com/vtop-log/vtop"
)

// nodeMeta is what a node says of itself in gossip: enough to find it, and nothing that gives a right.
//
//	byte     version (1)
//	16 bytes storage id
//	8 bytes  incarnation, big endian
//	3 times  length byte, then that many bytes: name, Raft server id, peer address
//
// memberlist panics beyond 512 bytes, so the length is checked when a node opens, not when it gossips.
type nodeMeta struct {
	Name        vtop.NodeName
	Storage     vtop.StorageID
	Incarnation vtop.Incarnation
	ServerID    string
	Peer        string
}

const (
	nodeMetaVersion = 1
	nodeMetaFixed   = 1 + 16 + 8
)

func (m nodeMeta) encode() ([]byte, error) {
	out := make([]byte, 0, nodeMetaFixed+3+len(m.Name)+len(m.ServerID)+len(m.Peer))
	out = append(out, nodeMetaVersion)
	out = append(out, m.Storage[:]...)
	out = binary.BigEndian.AppendUint64(out, uint64(m.Incarnation))
	for _, s := range []string{string(m.Name), m.ServerID, m.Peer} {
		if len(s) > 255 {
			return nil, fmt.Errorf("gossip: %q has %d bytes, at most 255 can be told", s, len(s))
		}
		out = append(out, byte(len(s)))
		out = append(out, s...)
	}
	if len(out) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("gossip: name %q and peer address %q make %d bytes with the ids, at most %d can be told: use shorter ones",
			m.Name, m.Peer, len(out), memberlist.MetaMaxSize)
	}
	return out, nil
}

func decodeNodeMeta(raw []byte) (nodeMeta, error) {
	var m nodeMeta
	if len(raw) < nodeMetaFixed || len(raw) > memberlist.MetaMaxSize {
		return m, fmt.Errorf("gossip: meta of %d bytes, want %d to %d", len(raw), nodeMetaFixed, memberlist.MetaMaxSize)
	}
	if raw[0] != nodeMetaVersion {
		return m, fmt.Errorf("gossip: meta of version %d, this binary knows %d", raw[0], nodeMetaVersion)
	}
	copy(m.Storage[:], raw[1:17])
	m.Incarnation = vtop.Incarnation(binary.BigEndian.Uint64(raw[17:25]))
	rest := raw[nodeMetaFixed:]
	var texts [3]string
	for i := range texts {
		if len(rest) < 1 || len(rest) < 1+int(rest[0]) {
			return nodeMeta{}, fmt.Errorf("gossip: meta is cut short")
		}
		texts[i] = string(rest[1 : 1+int(rest[0])])
		rest = rest[1+int(rest[0]):]
	}
	m.Name, m.ServerID, m.Peer = vtop.NodeName(texts[0]), texts[1], texts[2]
	if m.Name == "" {
		return nodeMeta{}, fmt.Errorf("gossip: meta without a name")
	}
	return m, nil
}
