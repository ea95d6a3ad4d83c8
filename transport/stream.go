package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

const (
	// frameHead is the type byte and the u32 body length in front of each body.
	frameHead = 5
	// sendBuffer is how many bytes Send gathers before it writes without being asked to.
	sendBuffer = 64 << 10
	// directWrite is the payload size from which copying into the buffer costs more than a second slice.
	directWrite = 16 << 10
	// writeChunk is what one WriteTimeout is for.
	writeChunk = 1 << 20
	// recvBuffer is the read-ahead of one stream.
	recvBuffer = 32 << 10
)

// Stream is a connection of typed frames. Send and its kin may be called concurrently, and with Recv; Recv
// has one caller at a time.
//
// Sent frames wait in a buffer of 64 KiB until Flush, or until it is full. An error of any write is final:
// all later sends return it. There is no queue behind the buffer: a peer that reads too slowly makes Send and
// Flush wait, and after WriteTimeout without progress the stream is broken (I13).
type Stream struct {
	c       *conn
	peer    Caller
	purpose Purpose
	in      *bufio.Reader
	closed  atomic.Bool

	// Recv's own.
	idle     time.Duration
	deadline bool
	head     [frameHead]byte

	mu    sync.Mutex // guards what follows
	out   []byte
	extra []byte // encoded bodies
	vec   [2][]byte
	bufs  net.Buffers
	err   error
}

// Frame is one received frame. Body is valid until Release, which the receiver calls once; what DecodeAppend
// returns aliases it.
type Frame struct {
	Type FrameType
	Body []byte
	buf  *buffer
	life uint32
}

// Release gives the body's memory back. A second call does nothing.
func (f Frame) Release() {
	if f.buf != nil && f.buf.life.Load() == f.life {
		f.buf.put()
	}
}

func newStream(c *conn, peer Caller, purpose Purpose) *Stream {
	return &Stream{c: c, peer: peer, purpose: purpose, in: bufio.NewReaderSize(c, recvBuffer), out: make([]byte, 0, sendBuffer)}
}

// Peer is who is at the other end.
func (s *Stream) Peer() Caller { return s.peer }

// Purpose is what the stream was opened for.
func (s *Stream) Purpose() Purpose { return s.purpose }

// SetIdleTimeout bounds the silence between two frames in Recv; 0, the default, means none: then only a
// broken connection (TCP keep-alive, about two and a half minutes) ends Recv. It is Recv's own: not concurrent with it.
func (s *Stream) SetIdleTimeout(d time.Duration) { s.idle = d }

// SendAppend sends batches, which may be reused when it returns.
func (s *Stream) SendAppend(a Append, batches []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extra = a.AppendTo(s.extra[:0])
	return s.sendLocked(FrameAppend, s.extra, batches)
}

// SendAcks sends all acks in one frame.
func (s *Stream) SendAcks(acks []Ack) error {
	return s.encode(FrameAcks, func(b []byte) ([]byte, error) {
		for i := range acks {
			b = acks[i].AppendTo(b)
		}
		return b, nil
	})
}

// SendMarks sends all marks in one frame.
func (s *Stream) SendMarks(marks []Mark) error {
	return s.encode(FrameMarks, func(b []byte) ([]byte, error) {
		for i := range marks {
			b = marks[i].AppendTo(b)
		}
		return b, nil
	})
}

// SendRewind sends one rewind.
func (s *Stream) SendRewind(r Rewind) error {
	return s.encode(FrameRewind, func(b []byte) ([]byte, error) { return r.AppendTo(b), nil })
}

// SendControl sends a protobuf message of a control frame.
func (s *Stream) SendControl(m proto.Message) error {
	t, ok := ControlType(m)
	if !ok {
		return refusef(ErrInvalid, "%T is the message of no frame", m)
	}
	return s.encode(t, func(b []byte) ([]byte, error) { return proto.MarshalOptions{}.MarshalAppend(b, m) })
}

// encode sends a body that is built in the stream's own scratch buffer.
func (s *Stream) encode(t FrameType, build func([]byte) ([]byte, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	body, err := build(s.extra[:0])
	if err != nil {
		return fmt.Errorf("encode %s frame: %w", t, err)
	}
	if cap(body) <= sendBuffer {
		s.extra = body
	}
	return s.sendLocked(t, body, nil)
}

// Send appends a frame whose body is head and payload, one after the other. Both may be reused when it
// returns. It writes only if the buffer is full or the payload large. A body above MaxFrame, or MaxControl for all
// but append and reset frames, is refused with ErrFrameTooLarge and breaks nothing.
func (s *Stream) Send(t FrameType, head, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(t, head, payload)
}

func (s *Stream) sendLocked(t FrameType, head, payload []byte) error {
	if s.err != nil {
		return s.err
	}
	n := len(head) + len(payload)
	if n > maxBody(t) {
		return fmt.Errorf("%w: %s frame of %d bytes, at most %d", ErrFrameTooLarge, t, n, maxBody(t))
	}
	if payload == nil && len(head) >= directWrite {
		head, payload = nil, head
	}
	whole := len(payload) < directWrite
	need := frameHead + len(head)
	if whole {
		need += len(payload)
	}
	if len(s.out)+need > cap(s.out) {
		if err := s.writeLocked(nil); err != nil {
			return err
		}
	}
	s.out = append(s.out, byte(t))
	s.out = binary.BigEndian.AppendUint32(s.out, uint32(n))
	s.out = append(s.out, head...)
	if whole {
		s.out = append(s.out, payload...)
		return nil
	}
	return s.writeLocked(payload)
}

// Flush writes what was sent, in one write if it fits.
func (s *Stream) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(nil)
}

// writeLocked writes the buffer and then payload, in one system call where the connection can.
func (s *Stream) writeLocked(payload []byte) error {
	if s.err != nil {
		return s.err
	}
	first := s.out
	s.out = s.out[:0]
	for len(first)+len(payload) > 0 {
		chunk := payload[:min(len(payload), writeChunk)]
		payload = payload[len(chunk):]
		if err := s.c.SetWriteDeadline(time.Now().Add(WriteTimeout)); err != nil {
			return s.breakLocked(err)
		}
		if err := s.writePair(first, chunk); err != nil {
			return s.breakLocked(err)
		}
		first = nil
	}
	return nil
}

func (s *Stream) writePair(a, b []byte) error {
	switch {
	case len(b) == 0:
		_, err := s.c.Write(a)
		return err
	case len(a) == 0:
		_, err := s.c.Write(b)
		return err
	}
	// The *net.TCPConn below conn writes both at once. TLS writes each record of 16 KiB on its own; gathering
	// those below it was measured and gains nothing.
	s.vec = [2][]byte{a, b}
	s.bufs = s.vec[:]
	w := io.Writer(s.c.Conn)
	_, err := s.bufs.WriteTo(w)
	s.vec = [2][]byte{}
	return err
}

// breakLocked makes err final and ends Recv too: half a frame may have gone out.
func (s *Stream) breakLocked(err error) error {
	if s.closed.Load() {
		err = net.ErrClosed
	}
	s.err = brokenError("send to "+s.peerText(), err)
	_ = s.c.Close() // s.err is what happened
	return s.err
}

func (s *Stream) peerText() string { return Target{Name: s.peer.Name, Addr: s.peer.Addr}.String() }

// Recv returns the next frame. The errors: io.EOF after an orderly end; what the peer gave to End; ErrCut if
// the connection broke; ErrFrameTooLarge for a length above the type's cap, which closes the stream;
// os.ErrDeadlineExceeded after the idle timeout; vtop.ErrClosed after Close.
func (s *Stream) Recv() (Frame, error) {
	if err := s.await(s.in.Buffered() >= frameHead, s.idle); err != nil {
		return Frame{}, s.recvError(err)
	}
	if _, err := io.ReadFull(s.in, s.head[:]); err != nil {
		return Frame{}, s.recvError(err)
	}
	t, n := FrameType(s.head[0]), binary.BigEndian.Uint32(s.head[1:])
	if int64(n) > int64(maxBody(t)) {
		_ = s.Close() // what follows cannot be read
		return Frame{}, fmt.Errorf("%w: %s frame of %d bytes from %s, at most %d", ErrFrameTooLarge, t, n, s.peerText(), maxBody(t))
	}
	if err := s.await(s.in.Buffered() >= int(n), bodyTimeout); err != nil {
		return Frame{}, s.recvError(err)
	}
	buf, err := readBody(s.in, int(n))
	if err != nil {
		return Frame{}, s.recvError(err)
	}
	f := Frame{Type: t, Body: buf.bytes[:n], buf: buf, life: buf.life.Load()}
	if t != FrameEnd {
		return f, nil
	}
	defer f.Release()
	return Frame{}, s.ended(f.Body)
}

// await sets the deadline for what comes next, unless it is here already.
func (s *Stream) await(here bool, d time.Duration) error {
	if here || d == 0 && !s.deadline {
		return nil
	}
	s.deadline = d != 0
	if d == 0 {
		return s.c.SetReadDeadline(time.Time{})
	}
	return s.c.SetReadDeadline(time.Now().Add(d))
}

func (s *Stream) ended(body []byte) error {
	end := new(peerpb.End)
	if err := proto.Unmarshal(body, end); err != nil {
		return refusef(ErrInvalid, "end frame of %d bytes: %v", len(body), err)
	}
	if err := errorOfDetail(end.GetError()); err != nil {
		return err
	}
	return io.EOF
}

func (s *Stream) recvError(err error) error {
	if s.closed.Load() {
		err = net.ErrClosed
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("receive from %s: %w", s.peerText(), err)
	}
	return brokenError("receive from "+s.peerText(), err)
}

// End says that nothing more will be sent, and why: nil for an orderly end. It flushes. The stream can still
// receive; Close it when that is over.
func (s *Stream) End(reason error) error {
	end := new(peerpb.End)
	if reason != nil {
		end.Error = detailOf("", reason)
	}
	if err := s.SendControl(end); err != nil {
		return err
	}
	if err := s.Flush(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = fmt.Errorf("stream to %s was ended: %w", s.peerText(), vtop.ErrClosed)
	if half, ok := s.c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the end frame is out; a peer that has closed already needs no more
	}
	return nil
}

// Close closes the connection at once: waiting calls return. What was not flushed is not sent.
func (s *Stream) Close() error {
	s.closed.Store(true)
	return s.c.Close()
}
