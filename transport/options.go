package transport

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
	"github.com/vtop-log/vtop/transport/tlsid"
)

// Limits and deadlines of the peer plane. They are constants: no operator has a better guess.
const (
	// HandshakeTimeout is the time in which a new connection has to say who it is.
	HandshakeTimeout = 5 * time.Second
	// WriteTimeout bounds one write to a connection; a peer that takes nothing for that long is cut off.
	WriteTimeout = 10 * time.Second
	// bodyTimeout bounds the rest of a frame or request whose beginning has arrived.
	bodyTimeout = 30 * time.Second
	// keepAliveIdle is how long an unused HTTP connection is kept.
	keepAliveIdle = 90 * time.Second
	// maxCallTime bounds a call on the answering side, whatever deadline the caller has.
	maxCallTime = 2 * time.Minute

	// MaxFrame is the largest body in bytes of a frame that carries raw bytes: append and reset.
	MaxFrame = 64 << 20
	// MaxControl is the largest body of any other frame, and the largest request other than a proposal. It is
	// smaller because decoding it takes up to forty times its size.
	MaxControl = 4 << 20
	// MaxMessage is the largest proposal in bytes, and the largest answer other than ReadLog's.
	MaxMessage = 16 << 20
	// MaxBulkMessage is the largest answer of ReadLog in bytes.
	MaxBulkMessage = MaxFrame
	// maxHello is the largest Hello or HelloReply in bytes: all that a stranger gets buffered.
	maxHello = 4 << 10
	// maxCalls bounds calls being answered at a time; more are refused with vtop.ErrOverloaded.
	maxCalls = 1024
)

// Options configure a Mux, a Dialer or a Client; all three of one node share them.
type Options struct {
	// Self says who this node is. It is called for every connection and call, concurrently, and must be quick.
	Self func() Self
	// TLS is the node's certificate; nil means plaintext (see tlsid.CheckPlaintext).
	TLS *tlsid.Identity
	// Log is required.
	Log hclog.Logger
	// Dialer defaults to a net.Dialer with a 15 s keep-alive.
	Dialer NetDialer
	// Admit, if set, has the last word on a caller that fits: it may refuse a storage id or incarnation that
	// is not the registered one. It is called for every new connection and every call, and must be quick.
	Admit func(Caller) error
	// AllowTransfer is the transfer allowlist: whether a caller, which is of this cluster and which Admit took,
	// may seal, pin, and read sealed segments. Nil allows every such caller. It is asked before anything else of
	// the request is looked at, and must be quick. What it returns is sent as ErrNotAllowed, unless it matches
	// another error of the table, such as vtop.ErrNotReady while it is not known who is registered.
	AllowTransfer func(Caller) error
	// MaxConns bounds accepted connections of a Mux; default 4096. Above it, new ones are closed.
	MaxConns int
	// MaxPending bounds connections that have not said who they are; default 256. Above it, the oldest of
	// them is closed, so that a crowd of silent strangers does not keep nodes out.
	MaxPending int
}

func (o Options) withDefaults() (Options, error) {
	if o.Self == nil || o.Log == nil {
		return o, fmt.Errorf("transport options: Self and Log must be set")
	}
	if o.MaxConns == 0 {
		o.MaxConns = 4096
	}
	if o.MaxPending == 0 {
		o.MaxPending = 256
	}
	if o.MaxConns < 1 || o.MaxPending < 1 || o.MaxPending > o.MaxConns {
		return o, fmt.Errorf("transport options: MaxConns %d, MaxPending %d: want 1 <= MaxPending <= MaxConns", o.MaxConns, o.MaxPending)
	}
	if name := o.Self().Name; o.TLS != nil && o.TLS.Name() != name {
		return o, fmt.Errorf("certificate is for node %q, this node is %q: issue one with 'vtopctl cert issue'", o.TLS.Name(), name)
	}
	if o.Dialer == nil {
		o.Dialer = defaultDialer()
	}
	return o, nil
}

// allowTransfer asks the transfer allowlist about a caller that admit took.
func (o Options) allowTransfer(from Caller) error {
	if o.AllowTransfer == nil {
		return nil
	}
	err := o.AllowTransfer(from)
	if err == nil || rowOf(err).err != nil {
		return err
	}
	return refusef(ErrNotAllowed, "node %q at %s may neither seal nor transfer from node %q: %v", from.Name, from.Addr, o.Self().Name, err)
}

// Purpose says what a stream is for.
type Purpose = peerpb.Purpose

// Purposes of streams.
const (
	Replication Purpose = peerpb.Purpose_PURPOSE_REPLICATION
	Heartbeat   Purpose = peerpb.Purpose_PURPOSE_HEARTBEAT
)

// admit checks a caller against self and the option Admit.
func (o Options) admit(from Caller, to vtop.NodeName, needCluster bool) error {
	if err := fits(o.Self(), from, to, needCluster); err != nil {
		return err
	}
	if o.Admit != nil {
		return o.Admit(from)
	}
	return nil
}
