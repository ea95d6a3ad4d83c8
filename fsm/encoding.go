package fsm

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// A state on disk, and on its way to a node that is far behind:
//
//	8 bytes   "VTOPSTAT"
//	2 bytes   format, big endian: 1
//	then records, in this order: the cluster, nodes by name, topics by id, ranges by id, segments by range and base, tombstones
//	by id, repair jobs by id, coordinator slots, groups by slot and id, members by group and id, offsets by group and range,
//	quotas by client id:
//	  1 byte    kind (1…12)
//	  4 bytes   length of the body, big endian, at most MaxRecord
//	  n bytes   body: a protobuf message of package fsmpb, deterministically marshalled
//	1 byte    0: end
//	8 bytes   number of records, big endian
//	4 bytes   CRC32C of everything before
//
// Two equal states have equal bytes, if the same build writes them.
const (
	stateMagic  = "VTOPSTAT"
	stateFormat = 1
	// MaxRecord bounds one record.
	MaxRecord = 16 << 20
	// recordStep is how much is allocated at a time for a record that says that it is long.
	recordStep = 64 << 10
)

const (
	recordEnd       = 0
	recordCluster   = 1
	recordNode      = 2
	recordTopic     = 3
	recordRange     = 4
	recordSegment   = 5
	recordTombstone = 6
	recordRepair    = 7
	// of consumer groups: the coordinator slots that were ever granted, groups by slot and id, members and offsets by group
	recordCoordinator = 8
	recordGroup       = 9
	recordMember      = 10
	recordOffset      = 11
	recordQuota       = 12
)

func newCRC() hash.Hash32 { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }

// Save writes the state as Load reads it. It may run while newer states are made.
func (s *State) Save(w io.Writer) error {
	if err := s.save(w); err != nil {
		return fmt.Errorf("save state at index %d: %w", s.index, err)
	}
	return nil
}

func (s *State) save(w io.Writer) error {
	out := &recordWriter{crc: newCRC()}
	buf := bufio.NewWriterSize(w, 64<<10)
	out.w = io.MultiWriter(buf, out.crc)
	out.bytes(append([]byte(stateMagic), 0, stateFormat))
	out.record(recordCluster, s.putCluster())
	for n := range s.Nodes() {
		out.record(recordNode, putNode(n))
	}
	for t := range all(s.topics) {
		out.record(recordTopic, putTopic(t))
	}
	for r := range s.Ranges() {
		out.record(recordRange, putRange(r))
	}
	for seg := range all(s.segments) {
		out.record(recordSegment, putSegment(seg))
	}
	for t := range s.Tombstones() {
		out.record(recordTombstone, putTombstone(t))
	}
	for j := range s.Repairs() {
		out.record(recordRepair, putRepair(j))
	}
	s.saveGroups(out)
	s.saveQuotas(out)
	out.bytes(binary.BigEndian.AppendUint64([]byte{recordEnd}, out.n))
	if out.err != nil {
		return out.err
	}
	if _, err := buf.Write(binary.BigEndian.AppendUint32(nil, out.crc.Sum32())); err != nil {
		return err
	}
	return buf.Flush()
}

// Hash is the SHA-256 of what Save writes: nodes of the same build that applied the same log have the same.
func (s *State) Hash() [sha256.Size]byte {
	h := sha256.New()
	if err := s.save(h); err != nil {
		panic(fmt.Sprintf("hash state at index %d: %v", s.index, err)) // a hash takes every write; a record over MaxRecord is a bug
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// recordWriter writes records and keeps the first error.
type recordWriter struct {
	w   io.Writer
	crc hash.Hash32
	n   uint64
	buf []byte
	err error
}

func (w *recordWriter) bytes(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
}

func (w *recordWriter) record(kind byte, m proto.Message) {
	if w.err != nil {
		return
	}
	w.buf = append(w.buf[:0], kind, 0, 0, 0, 0)
	w.buf, w.err = proto.MarshalOptions{Deterministic: true}.MarshalAppend(w.buf, m)
	size := len(w.buf) - 5
	if w.err == nil && size > MaxRecord {
		w.err = fmt.Errorf("record of kind %d has %d bytes, at most %d", kind, size, MaxRecord)
	}
	if w.err != nil {
		return
	}
	binary.BigEndian.PutUint32(w.buf[1:], uint32(size))
	w.n++
	w.bytes(w.buf)
}

// Load reads what Save wrote, and believes nothing of it: lengths, counts, checksum, references and invariants are
// checked. The error says what is wrong; a whole state of a higher feature level is refused with a *Fault.
func Load(r io.Reader) (*State, error) {
	in := &recordReader{crc: newCRC()}
	in.src = bufio.NewReaderSize(r, 64<<10)
	head := in.bytes(len(stateMagic) + 2)
	if in.err != nil {
		return nil, fmt.Errorf("load state: %w", in.err)
	}
	if string(head[:len(stateMagic)]) != stateMagic {
		return nil, errors.New("load state: this is not a state of vtop")
	}
	if f := binary.BigEndian.Uint16(head[len(stateMagic):]); f != stateFormat {
		return nil, fmt.Errorf("load state: format %d, this build reads format %d", f, stateFormat)
	}
	l := &loader{s: NewState()}
	for in.next() {
		if err := l.load(in.kind, in.body); err != nil {
			var newer *Fault
			for errors.As(err, &newer) && in.next() {
			} // what is damaged is no state of a newer build, whatever it says
			if newer != nil && in.err != nil {
				err = in.err
			}
			return nil, fmt.Errorf("load state: record %d: %w", in.n, err)
		}
	}
	if in.err != nil {
		return nil, fmt.Errorf("load state: record %d: %w", in.n, in.err)
	}
	if err := l.s.Check(); err != nil {
		return nil, fmt.Errorf("load state: %w", err)
	}
	return l.s, nil
}

// recordReader reads records and keeps the first error.
type recordReader struct {
	src  *bufio.Reader
	crc  hash.Hash32
	n    uint64
	kind byte
	body []byte
	err  error
}

// bytes reads n bytes, allocating no more than a step beyond what is really there.
func (r *recordReader) bytes(n int) []byte {
	b := make([]byte, 0, min(n, recordStep))
	for len(b) < n && r.err == nil {
		at := len(b)
		b = append(b, make([]byte, min(n-at, recordStep))...)
		_, r.err = io.ReadFull(r.src, b[at:])
	}
	if r.err == io.EOF {
		r.err = io.ErrUnexpectedEOF
	}
	r.crc.Write(b)
	return b
}

// next reads a record; false at the end or an error.
func (r *recordReader) next() bool {
	kind := r.bytes(1)
	if r.err != nil {
		return false
	}
	if kind[0] == recordEnd {
		r.end()
		return false
	}
	head := r.bytes(4)
	if r.err != nil {
		return false
	}
	size := binary.BigEndian.Uint32(head)
	if size > MaxRecord {
		r.err = fmt.Errorf("length %d, at most %d", size, MaxRecord)
		return false
	}
	r.kind, r.body = kind[0], r.bytes(int(size))
	r.n++
	return r.err == nil
}

// end checks number and checksum, and that nothing follows.
func (r *recordReader) end() {
	count := r.bytes(8)
	sum := r.crc.Sum32()
	stored := r.bytes(4)
	switch {
	case r.err != nil:
	case binary.BigEndian.Uint64(count) != r.n:
		r.err = fmt.Errorf("%d records found, %d were written", r.n, binary.BigEndian.Uint64(count))
	case binary.BigEndian.Uint32(stored) != sum:
		r.err = fmt.Errorf("checksum is %08x, written was %08x", sum, binary.BigEndian.Uint32(stored))
	default:
		if _, err := r.src.ReadByte(); err != io.EOF {
			r.err = errors.New("bytes follow the end")
		}
	}
}

// loader fills a new state from records.
type loader struct {
	s *State
	// last is the kind of the record before: kinds rise, and the cluster comes first and once.
	last byte
}

func (l *loader) load(kind byte, body []byte) error {
	if kind < l.last || (kind == recordCluster) != (l.last == 0) {
		return fmt.Errorf("kind %d after kind %d", kind, l.last)
	}
	l.last = kind
	r := new(reader)
	m, fill := l.record(kind, r)
	if m == nil {
		return fmt.Errorf("kind %d: this build knows kinds up to %d", kind, recordQuota)
	}
	if err := unmarshal(body, m); err != nil {
		return fmt.Errorf("kind %d: %w", kind, err)
	}
	fill()
	if r.err != nil {
		return fmt.Errorf("kind %d: %w", kind, r.err)
	}
	return nil
}

func (l *loader) record(kind byte, r *reader) (m proto.Message, fill func()) {
	switch kind {
	case recordCluster:
		p := new(fsmpb.ClusterRecord)
		return p, func() { r.cluster(l.s, p) }
	case recordNode:
		p := new(fsmpb.NodeRecord)
		return p, func() { r.node(l.s, p) }
	case recordTopic:
		p := new(fsmpb.TopicRecord)
		return p, func() { r.topic(l.s, p) }
	case recordRange:
		p := new(fsmpb.RangeRecord)
		return p, func() { r.rangeRecord(l.s, p) }
	case recordSegment:
		p := new(fsmpb.SegmentRecord)
		return p, func() { r.segment(l.s, p) }
	case recordTombstone:
		p := new(fsmpb.TombstoneRecord)
		return p, func() { r.tombstone(l.s, p) }
	case recordRepair:
		p := new(fsmpb.RepairRecord)
		return p, func() { r.repair(l.s, p) }
	}
	if m, fill := l.quotaRecord(kind, r); m != nil {
		return m, fill
	}
	return l.groupRecord(kind, r)
}
