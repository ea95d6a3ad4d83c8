package fsm

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// empty and with adapt the functions of one message type to the table of commands.
func empty[T any, P interface {
	*T
	proto.Message
}]() proto.Message {
	return P(new(T))
}

func with[P proto.Message, C Command](decode func(*reader, P) C) func(proto.Message) (Command, error) {
	return func(m proto.Message) (Command, error) {
		r := new(reader)
		c := decode(r, m.(P))
		return c, r.err
	}
}

// unmarshal reads m and refuses fields that this build does not know.
func unmarshal(b []byte, m proto.Message) error {
	if err := proto.Unmarshal(b, m); err != nil {
		return err
	}
	return known(m.ProtoReflect())
}

func known(m protoreflect.Message) (err error) {
	if len(m.GetUnknown()) > 0 {
		return fmt.Errorf("%s has fields that this build does not know", m.Descriptor().Name())
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() != protoreflect.MessageKind:
		case fd.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = known(v.List().Get(i).Message())
			}
		default:
			err = known(v.Message())
		}
		return err == nil
	})
	return err
}

// reader turns protobuf values into ours and keeps the first error.
type reader struct{ err error }

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// uuid reads 16 bytes; none stand for the zero UUID.
func (r *reader) uuid(b []byte) (u vtop.UUID) {
	if len(b) != 0 && len(b) != len(u) {
		r.fail("uuid of %d bytes: want %d", len(b), len(u))
		return u
	}
	copy(u[:], b)
	return u
}

func (r *reader) root(b []byte) (root [32]byte) {
	if len(b) != len(root) {
		r.fail("root of %d bytes: want %d", len(b), len(root))
		return root
	}
	copy(root[:], b)
	return root
}

// small reads a number that is an uint8 with us.
func (r *reader) small(v uint32) uint8 {
	if v > 255 {
		r.fail("value %d: want at most 255", v)
	}
	return uint8(v)
}

func (r *reader) rangeID(p *fsmpb.RangeID) vtop.Range {
	return vtop.Range{Topic: r.uuid(p.GetTopic()), Index: p.GetIndex()}
}

func (r *reader) config(list []*fsmpb.KeyValue) map[string]string {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]string, len(list))
	for i, kv := range list {
		if i > 0 && list[i-1].GetKey() >= kv.GetKey() {
			r.fail("configuration keys %q, %q are not in order", list[i-1].GetKey(), kv.GetKey())
		}
		m[kv.GetKey()] = kv.GetValue()
	}
	return m
}

func (r *reader) addresses(p *fsmpb.Addresses) Addresses {
	return Addresses{Kafka: p.GetKafka(), Peer: p.GetPeer(), Gossip: p.GetGossip(), Admin: p.GetAdmin()}
}

func (r *reader) identity(p *fsmpb.Identity) Identity {
	return Identity{
		Storage: r.uuid(p.GetStorage()), RaftID: p.GetRaftId(),
		Incarnation: vtop.Incarnation(p.GetIncarnation()), BootNonce: r.uuid(p.GetBootNonce()),
		Addresses: r.addresses(p.GetAddresses()), Rack: p.GetRack(), MaxLevel: Level(p.GetMaxLevel()), Version: p.GetVersion(),
	}
}

func (r *reader) placement(list []*fsmpb.Placement) [][]vtop.NodeName {
	return mapSlice(list, func(p *fsmpb.Placement) []vtop.NodeName { return nodeNames(p.GetNodes()) })
}

func putUUID(u vtop.UUID) []byte {
	if u.IsZero() {
		return nil
	}
	return u[:]
}

func putRangeID(r vtop.Range) *fsmpb.RangeID {
	return &fsmpb.RangeID{Topic: putUUID(r.Topic), Index: r.Index}
}

func putConfig(m map[string]string) []*fsmpb.KeyValue {
	return mapSlice(sortedKeys(m), func(k string) *fsmpb.KeyValue { return &fsmpb.KeyValue{Key: k, Value: m[k]} })
}

func putAddresses(a Addresses) *fsmpb.Addresses {
	return &fsmpb.Addresses{Kafka: a.Kafka, Peer: a.Peer, Gossip: a.Gossip, Admin: a.Admin}
}

func putIdentity(id Identity) *fsmpb.Identity {
	return &fsmpb.Identity{
		Storage: putUUID(id.Storage), RaftId: id.RaftID,
		Incarnation: uint64(id.Incarnation), BootNonce: putUUID(id.BootNonce),
		Addresses: putAddresses(id.Addresses), Rack: id.Rack, MaxLevel: uint32(id.MaxLevel), Version: id.Version,
	}
}

func putPlacement(ranges [][]vtop.NodeName) []*fsmpb.Placement {
	return mapSlice(ranges, func(n []vtop.NodeName) *fsmpb.Placement { return &fsmpb.Placement{Nodes: putNodeNames(n)} })
}

func nodeNames(in []string) []vtop.NodeName {
	return mapSlice(in, func(s string) vtop.NodeName { return vtop.NodeName(s) })
}

func putNodeNames(in []vtop.NodeName) []string {
	return mapSlice(in, func(n vtop.NodeName) string { return string(n) })
}

// mapSlice keeps nil for an empty list, so that a value is the same after a round trip.
func mapSlice[A, B any](in []A, fn func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = fn(v)
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
