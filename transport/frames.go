package transport

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// FrameType is the first byte of a frame. Numbers are written out and only appended; docs/format.md draws
// each body.
type FrameType uint8

// Frames of a stream. A handle is given by the leader's Follow and means nothing in the other direction, so
// one connection may carry both directions of a pair of nodes: Follow, Append, Marks, Reset and Unfollow are
// sent by the leader and speak of its handles; FollowOK, Refuse, Acks and Rewind are the follower's answers.
const (
	// FrameEnd closes the stream on purpose. Body: peerpb.End. Sent by Stream.End only.
	FrameEnd FrameType = 1
	// FrameFollow: body peerpb.Follow.
	FrameFollow FrameType = 2
	// FrameFollowOK: body peerpb.FollowOK.
	FrameFollowOK FrameType = 3
	// FrameRefuse: body peerpb.Refuse.
	FrameRefuse FrameType = 4
	// FrameAppend: body Append, then batches verbatim. Hot.
	FrameAppend FrameType = 5
	// FrameAcks: body one Ack or more. Hot.
	FrameAcks FrameType = 6
	// FrameMarks: body one Mark or more. Hot.
	FrameMarks FrameType = 7
	// FrameRewind: body Rewind. The follower's log does not reach the batch it was sent.
	FrameRewind FrameType = 8
	// FrameReset: body peerpb.Reset.
	FrameReset FrameType = 9
	// FrameUnfollow: body peerpb.Unfollow.
	FrameUnfollow FrameType = 10
	// FrameBeat: body peerpb.Beat.
	FrameBeat FrameType = 16
	// FrameBeatAck: body peerpb.BeatAck.
	FrameBeatAck FrameType = 17
)

// String names the type for error texts.
func (t FrameType) String() string {
	switch t {
	case FrameEnd:
		return "end"
	case FrameFollow:
		return "follow"
	case FrameFollowOK:
		return "follow-ok"
	case FrameRefuse:
		return "refuse"
	case FrameAppend:
		return "append"
	case FrameAcks:
		return "acks"
	case FrameMarks:
		return "marks"
	case FrameRewind:
		return "rewind"
	case FrameReset:
		return "reset"
	case FrameUnfollow:
		return "unfollow"
	case FrameBeat:
		return "beat"
	case FrameBeatAck:
		return "beat-ack"
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Sizes of the fixed bodies in bytes. All integers are big-endian, as in a record batch.
const (
	// AppendHeaderSize: handle u32, epoch i32, segment base i64, base i64, high watermark i64, log start i64.
	AppendHeaderSize = 40
	// AckSize: handle u32, epoch i32, durable end i64, log end i64.
	AckSize = 24
	// MarkSize: handle u32, epoch i32, high watermark i64, log start i64.
	MarkSize = 24
	// RewindSize: handle u32, epoch i32, end i64.
	RewindSize = 16
)

// Append is the fixed head of a FrameAppend. The batches behind it are whole record batches of one segment,
// continuous from Base.
type Append struct {
	Handle      uint32
	Epoch       vtop.Epoch
	SegmentBase vtop.Offset
	Base        vtop.Offset
	// HighWatermark and LogStart are the leader's when it sent the frame.
	HighWatermark vtop.Offset
	LogStart      vtop.Offset
}

// Ack says how far the follower's log has come under Epoch. Durable is never above End.
type Ack struct {
	Handle  uint32
	Epoch   vtop.Epoch
	Durable vtop.Offset
	End     vtop.Offset
}

// Mark tells a follower the leader's high watermark and log start when there is no batch to carry them.
type Mark struct {
	Handle        uint32
	Epoch         vtop.Epoch
	HighWatermark vtop.Offset
	LogStart      vtop.Offset
}

// Rewind asks the leader to go on from End.
type Rewind struct {
	Handle uint32
	Epoch  vtop.Epoch
	End    vtop.Offset
}

// AppendTo appends the encoded head to b.
func (a Append) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, a.Handle)
	b = binary.BigEndian.AppendUint32(b, uint32(a.Epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(a.SegmentBase))
	b = binary.BigEndian.AppendUint64(b, uint64(a.Base))
	b = binary.BigEndian.AppendUint64(b, uint64(a.HighWatermark))
	return binary.BigEndian.AppendUint64(b, uint64(a.LogStart))
}

// DecodeAppend splits the body of a FrameAppend. The batches alias body; their content is not looked at.
func DecodeAppend(body []byte) (Append, []byte, error) {
	if len(body) <= AppendHeaderSize {
		return Append{}, nil, refusef(ErrInvalid, "append frame has %d bytes, want more than %d", len(body), AppendHeaderSize)
	}
	a := Append{
		Handle:        binary.BigEndian.Uint32(body),
		Epoch:         vtop.Epoch(binary.BigEndian.Uint32(body[4:])),
		SegmentBase:   vtop.Offset(binary.BigEndian.Uint64(body[8:])),
		Base:          vtop.Offset(binary.BigEndian.Uint64(body[16:])),
		HighWatermark: vtop.Offset(binary.BigEndian.Uint64(body[24:])),
		LogStart:      vtop.Offset(binary.BigEndian.Uint64(body[32:])),
	}
	if a.Epoch <= 0 || a.SegmentBase < 0 || a.Base < a.SegmentBase || a.HighWatermark < 0 || a.LogStart < 0 {
		return Append{}, nil, refusef(ErrInvalid, "append frame: epoch %d, segment base %d, base %d, high watermark %d, log start %d",
			a.Epoch, a.SegmentBase, a.Base, a.HighWatermark, a.LogStart)
	}
	return a, body[AppendHeaderSize:], nil
}

// AppendTo appends the encoded acknowledgement to b.
func (a Ack) AppendTo(b []byte) []byte {
	return appendPair(b, a.Handle, a.Epoch, a.Durable, a.End)
}

// DecodeAcks appends the acknowledgements in body to dst.
func DecodeAcks(dst []Ack, body []byte) ([]Ack, error) {
	if len(body) == 0 || len(body)%AckSize != 0 {
		return dst, refusef(ErrInvalid, "acks frame has %d bytes, want a multiple of %d", len(body), AckSize)
	}
	for ; len(body) > 0; body = body[AckSize:] {
		a := Ack{}
		a.Handle, a.Epoch, a.Durable, a.End = decodePair(body)
		if a.Epoch <= 0 || a.Durable < 0 || a.End < a.Durable {
			return dst, refusef(ErrInvalid, "ack of handle %d: epoch %d, durable end %d, log end %d", a.Handle, a.Epoch, a.Durable, a.End)
		}
		dst = append(dst, a)
	}
	return dst, nil
}

// AppendTo appends the encoded mark to b.
func (m Mark) AppendTo(b []byte) []byte {
	return appendPair(b, m.Handle, m.Epoch, m.HighWatermark, m.LogStart)
}

// DecodeMarks appends the marks in body to dst.
func DecodeMarks(dst []Mark, body []byte) ([]Mark, error) {
	if len(body) == 0 || len(body)%MarkSize != 0 {
		return dst, refusef(ErrInvalid, "marks frame has %d bytes, want a multiple of %d", len(body), MarkSize)
	}
	for ; len(body) > 0; body = body[MarkSize:] {
		m := Mark{}
		m.Handle, m.Epoch, m.HighWatermark, m.LogStart = decodePair(body)
		if m.Epoch <= 0 || m.HighWatermark < 0 || m.LogStart < 0 {
			return dst, refusef(ErrInvalid, "mark of handle %d: epoch %d, high watermark %d, log start %d", m.Handle, m.Epoch, m.HighWatermark, m.LogStart)
		}
		dst = append(dst, m)
	}
	return dst, nil
}

// AppendTo appends the encoded rewind to b.
func (r Rewind) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.Handle)
	b = binary.BigEndian.AppendUint32(b, uint32(r.Epoch))
	return binary.BigEndian.AppendUint64(b, uint64(r.End))
}

// DecodeRewind reads the body of a FrameRewind.
func DecodeRewind(body []byte) (Rewind, error) {
	if len(body) != RewindSize {
		return Rewind{}, refusef(ErrInvalid, "rewind frame has %d bytes, want %d", len(body), RewindSize)
	}
	r := Rewind{
		Handle: binary.BigEndian.Uint32(body),
		Epoch:  vtop.Epoch(binary.BigEndian.Uint32(body[4:])),
		End:    vtop.Offset(binary.BigEndian.Uint64(body[8:])),
	}
	if r.Epoch <= 0 || r.End < 0 {
		return Rewind{}, refusef(ErrInvalid, "rewind of handle %d: epoch %d, end %d", r.Handle, r.Epoch, r.End)
	}
	return r, nil
}

func appendPair(b []byte, handle uint32, epoch vtop.Epoch, x, y vtop.Offset) []byte {
	b = binary.BigEndian.AppendUint32(b, handle)
	b = binary.BigEndian.AppendUint32(b, uint32(epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(x))
	return binary.BigEndian.AppendUint64(b, uint64(y))
}

func decodePair(b []byte) (handle uint32, epoch vtop.Epoch, x, y vtop.Offset) {
	return binary.BigEndian.Uint32(b), vtop.Epoch(binary.BigEndian.Uint32(b[4:])),
		vtop.Offset(binary.BigEndian.Uint64(b[8:])), vtop.Offset(binary.BigEndian.Uint64(b[16:]))
}

// maxBody is the cap on the length of one frame.
func maxBody(t FrameType) int {
	if t == FrameAppend || t == FrameReset {
		return MaxFrame
	}
	return MaxControl
}

// control lists the message of each control frame; the hot frames are not in it.
func control(t FrameType) proto.Message {
	switch t {
	case FrameEnd:
		return &peerpb.End{}
	case FrameFollow:
		return &peerpb.Follow{}
	case FrameFollowOK:
		return &peerpb.FollowOK{}
	case FrameRefuse:
		return &peerpb.Refuse{}
	case FrameReset:
		return &peerpb.Reset{}
	case FrameUnfollow:
		return &peerpb.Unfollow{}
	case FrameBeat:
		return &peerpb.Beat{}
	case FrameBeatAck:
		return &peerpb.BeatAck{}
	}
	return nil
}

// ControlType returns the frame type that carries m; ok is false if none does.
func ControlType(m proto.Message) (t FrameType, ok bool) {
	switch m.(type) {
	case *peerpb.End:
		return FrameEnd, true
	case *peerpb.Follow:
		return FrameFollow, true
	case *peerpb.FollowOK:
		return FrameFollowOK, true
	case *peerpb.Refuse:
		return FrameRefuse, true
	case *peerpb.Reset:
		return FrameReset, true
	case *peerpb.Unfollow:
		return FrameUnfollow, true
	case *peerpb.Beat:
		return FrameBeat, true
	case *peerpb.BeatAck:
		return FrameBeatAck, true
	}
	return 0, false
}

// DecodeControl reads the body of a control frame into its message. The message does not alias body. A hot or
// unknown type is refused with ErrInvalid.
func DecodeControl(t FrameType, body []byte) (proto.Message, error) {
	m := control(t)
	if m == nil {
		return nil, refusef(ErrInvalid, "%s is not a control frame", t)
	}
	if err := proto.Unmarshal(body, m); err != nil {
		return nil, refusef(ErrInvalid, "%s frame of %d bytes: %v", t, len(body), err)
	}
	return m, nil
}

// RefuseFollow is the answer to a Follow that the follower cannot obey; Reason gives the error back.
func RefuseFollow(self vtop.NodeName, handle uint32, epoch vtop.Epoch, err error) *peerpb.Refuse {
	return &peerpb.Refuse{Handle: handle, Epoch: int32(epoch), Error: detailOf(self, err)}
}

// RefusalOf gives the error inside a Refuse, for errors.Is.
func RefusalOf(r *peerpb.Refuse) error {
	if r.GetError() == nil {
		return refusef(ErrInvalid, "refusal of handle %d gives no reason", r.GetHandle())
	}
	return errorOfDetail(r.GetError())
}
