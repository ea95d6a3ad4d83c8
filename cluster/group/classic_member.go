package group

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/fsm"
)

// subscriptionVersion is the version of JoinGroup as which the protocols of a member are kept in the state machine. It
// never changes.
const subscriptionVersion = 9

// encodeProtocols gives the bytes that the state machine keeps of a member's protocols: a JoinGroup request with nothing
// else in it.
func encodeProtocols(protocolType string, protocols []Protocol) []byte {
	req := kmsg.NewJoinGroupRequest()
	req.Version, req.ProtocolType = subscriptionVersion, protocolType
	for _, p := range protocols {
		rp := kmsg.NewJoinGroupRequestProtocol()
		rp.Name, rp.Metadata = p.Name, p.Metadata
		req.Protocols = append(req.Protocols, rp)
	}
	return req.AppendTo(nil)
}

func decodeProtocols(b []byte) ([]Protocol, error) {
	req := kmsg.NewJoinGroupRequest()
	req.Version = subscriptionVersion
	if err := req.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("protocols of a member: %w", err)
	}
	out := make([]Protocol, len(req.Protocols))
	for i, p := range req.Protocols {
		out[i] = Protocol{p.Name, p.Metadata}
	}
	return out, nil
}

// store gives the member as the state machine keeps it.
func (m *classicMember) store() fsm.GroupMember {
	return fsm.GroupMember{
		ID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost,
		RebalanceTimeoutMS: int32(m.rebalance.Milliseconds()), SessionTimeoutMS: int32(m.session.Milliseconds()),
		Subscription: encodeProtocols("", m.protocols), Assignment: m.assignment,
	}
}

// loadMember is the way back. A subscription that cannot be read leaves a member without protocols: it is asked to join
// again by the next rebalance, or its session ends.
func loadMember(s *fsm.GroupMember) *classicMember {
	protocols, err := decodeProtocols(s.Subscription)
	if err != nil {
		protocols = nil
	}
	return &classicMember{
		id: s.ID, instance: s.InstanceID, clientID: s.ClientID, clientHost: s.ClientHost,
		rebalance: time.Duration(s.RebalanceTimeoutMS) * time.Millisecond, session: time.Duration(s.SessionTimeoutMS) * time.Millisecond,
		protocols: protocols, assignment: s.Assignment, told: true,
	}
}

// bytes is what the member takes, as MaxGroupBytes counts it.
func (m *classicMember) bytes() int { return protocolBytes(m.protocols) + len(m.assignment) }

func protocolBytes(protocols []Protocol) (n int) {
	for _, p := range protocols {
		n += len(p.Name) + len(p.Metadata) + 16
	}
	return n
}

// metadata is the member's for one protocol; nil if it does not offer it.
func (m *classicMember) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *classicMember) offers(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p Protocol) bool { return p.Name == protocol })
}

// agrees reports whether the member offers exactly these protocols, in this order, with this metadata.
func (m *classicMember) agrees(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b Protocol) bool { return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata) })
}

// instanceID is how clients are told of a static member; nil for others.
func (m *classicMember) instanceID() *string {
	if m.instance == "" {
		return nil
	}
	return &m.instance
}
