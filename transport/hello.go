package transport

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// A connection that is not HTTP begins with eight bytes that say what it is, then a hello, and is answered by
// a reply: both are a big-endian u32 length and that many bytes of protobuf. Under TLS the protocol was
// negotiated by ALPN already, and the eight bytes must agree with it.
const (
	preambleSize   = 8
	preambleRaft   = "VTOPRAFT"
	preambleStream = "VTOPSTRM"

	alpnRaft   = "vtop-raft"
	alpnStream = "vtop-stream"
	alpnHTTP   = "http/1.1"

	// protocolVersion is of the hello and all that follows it.
	protocolVersion = 1
)

// helloOf says who this node is.
func helloOf(self Self, to vtop.NodeName, p Purpose) *peerpb.Hello {
	return &peerpb.Hello{
		Protocol:    protocolVersion,
		ClusterId:   UUIDBytes(self.Cluster),
		Generation:  self.Generation,
		Name:        string(self.Name),
		ServerId:    self.ServerID,
		StorageId:   UUIDBytes(self.Storage),
		Incarnation: uint64(self.Incarnation),
		To:          string(to),
		Purpose:     p,
	}
}

// callerOf reads who is at the other end. proven is the name in its certificate, empty in plaintext.
func callerOf(h *peerpb.Hello, addr string, proven vtop.NodeName) (Caller, error) {
	cluster, err := UUIDFrom("hello.cluster_id", h.GetClusterId())
	if err != nil {
		return Caller{}, err
	}
	storage, err := UUIDFrom("hello.storage_id", h.GetStorageId())
	if err != nil {
		return Caller{}, err
	}
	from := Caller{
		Self: Self{
			Name: vtop.NodeName(h.GetName()), Cluster: cluster, Generation: h.GetGeneration(), Storage: storage,
			Incarnation: vtop.Incarnation(h.GetIncarnation()), ServerID: h.GetServerId(),
		},
		Addr: addr, Proven: proven != "",
	}
	return from, proveName(from.Name, proven, addr)
}

// proveName compares the name that a peer gives itself with the one in its certificate.
func proveName(name, proven vtop.NodeName, addr string) error {
	if proven != "" && name != proven {
		return refusef(ErrWrongNode, "peer at %s calls itself node %q, its certificate is for node %q", addr, name, proven)
	}
	return nil
}

// checkHello judges a hello on the answering side.
func (o Options) checkHello(h *peerpb.Hello, from Caller, raft bool) error {
	if h.GetProtocol() != protocolVersion {
		return refusef(ErrInvalid, "node %q at %s speaks version %d of the peer protocol, this node version %d: upgrade the older one",
			from.Name, from.Addr, h.GetProtocol(), protocolVersion)
	}
	if raft != (h.GetPurpose() == peerpb.Purpose_PURPOSE_RAFT) {
		return refusef(ErrInvalid, "purpose %s does not belong on this kind of connection", h.GetPurpose())
	}
	return o.admit(from, vtop.NodeName(h.GetTo()), true)
}

// writeMessage sends one length-prefixed message, behind prefix, in one write.
func writeMessage(w io.Writer, prefix string, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if len(body) > maxHello {
		return fmt.Errorf("%w: hello of %d bytes, at most %d", ErrFrameTooLarge, len(body), maxHello)
	}
	out := append(make([]byte, 0, len(prefix)+4+len(body)), prefix...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(body)))
	_, err = w.Write(append(out, body...))
	return err
}

// readMessage reads what writeMessage sent, after the prefix.
func readMessage(r io.Reader, into proto.Message) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxHello {
		if head[0] == tlsAlert || head[0] == tlsHandshake {
			return refusef(ErrInvalid, "the other side speaks TLS, this side plaintext: give both --tls-*")
		}
		return fmt.Errorf("%w: hello of %d bytes, at most %d", ErrFrameTooLarge, n, maxHello)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if err := proto.Unmarshal(body, into); err != nil {
		return refusef(ErrInvalid, "hello of %d bytes: %v", n, err)
	}
	return nil
}

// First bytes of TLS records.
const (
	tlsAlert     = 0x15
	tlsHandshake = 0x16
)

// replyOf answers a hello; err nil accepts it.
func replyOf(self Self, err error) *peerpb.HelloReply {
	r := &peerpb.HelloReply{
		Protocol:    protocolVersion,
		ClusterId:   UUIDBytes(self.Cluster),
		Generation:  self.Generation,
		Name:        string(self.Name),
		ServerId:    self.ServerID,
		StorageId:   UUIDBytes(self.Storage),
		Incarnation: uint64(self.Incarnation),
	}
	if err != nil {
		r.Error = detailOf(self.Name, err)
	}
	return r
}

// checkReply judges the answer on the calling side: a node may be wrong about itself only in its own eyes.
func checkReply(self Self, to Target, r *peerpb.HelloReply, proven vtop.NodeName) (Caller, error) {
	if err := errorOfDetail(r.GetError()); err != nil {
		return Caller{}, err
	}
	as := &peerpb.Hello{ClusterId: r.GetClusterId(), Generation: r.GetGeneration(), Name: r.GetName(),
		ServerId: r.GetServerId(), StorageId: r.GetStorageId(), Incarnation: r.GetIncarnation()}
	peer, err := callerOf(as, to.Addr, proven)
	if err != nil {
		return Caller{}, err
	}
	if to.Name != "" && peer.Name != to.Name {
		return Caller{}, refusef(ErrWrongNode, "%s answers as node %q", to, peer.Name)
	}
	return peer, fits(self, peer, "", true)
}

// prefixConn gives back bytes that were read to see what a connection is.
type prefixConn struct {
	net.Conn
	prefix []byte
}

// Read implements net.Conn.
func (c *prefixConn) Read(b []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(b, c.prefix)
		c.prefix = c.prefix[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
