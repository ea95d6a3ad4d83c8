package kafka

import (
	"encoding/binary"
	"slices"

	"github.com/vtop-log/vtop"
)

// fetchEncoder lays a Fetch answer, versions 4 to 18, out in one buffer, so that record batches are read from the log
// straight into their place and the whole leaves in one write. The fixed fields that are known only after the read
// are patched. Its bytes equal those of kmsg.FetchResponse; a test holds it to that.
//
//	length int32, correlation id int32, [tags]
//	throttle int32, [v7: error int16, session int32], topics
//	  topic: name or [v13: id], partitions, [tags]
//	    partition: index int32, error int16, high watermark int64, last stable int64, [v5: log start int64],
//	               aborted: null or empty array, [v11: preferred replica int32], records: length and bytes,
//	               [tags: diverging epoch, leader]
//	[tags: addresses of the leaders named]
//
// Tags, and compact lengths, are there from version 12 on.
type fetchEncoder struct {
	b        []byte
	version  int16
	flexible bool
	// committed: the client asked for read_committed and expects the list of aborted transactions, which is empty.
	committed bool

	head    int // where the open partition begins
	records int // where its records begin
}

// lengthGuess is the width kept free for a compact record length: it fits records from 16 KiB to 2 MiB.
const lengthGuess = 3

func (e *fetchEncoder) begin(corr int32, code int16, topics int) {
	e.flexible = e.version >= 12
	e.int32(0) // the length
	e.int32(corr)
	e.noTags()
	e.int32(0) // throttle
	if e.version >= 7 {
		e.int16(code)
		e.int32(0) // session
	}
	e.arrayLen(topics)
}

func (e *fetchEncoder) topic(t topicRef, partitions int) {
	if t.byID {
		e.b = append(e.b, t.id[:]...)
	} else {
		e.string(t.name)
	}
	e.arrayLen(partitions)
}

// open writes a partition up to its records; then the records are appended to e.b, and close is called.
func (e *fetchEncoder) open(index int32) {
	e.head = len(e.b)
	e.int32(index)
	e.int16(0)
	e.int64(-1) // high watermark, at +6
	e.int64(-1) // last stable
	if e.version >= 5 {
		e.int64(-1) // log start
	}
	switch { // aborted transactions
	case e.committed:
		e.arrayLen(0)
	case e.flexible:
		e.b = append(e.b, 0)
	default:
		e.int32(-1)
	}
	if e.version >= 11 {
		e.int32(-1) // preferred replica
	}
	if e.flexible {
		e.b = append(e.b, make([]byte, lengthGuess)...)
	} else {
		e.int32(0)
	}
	e.records = len(e.b)
}

// fetchTail is what the tags of a partition may tell.
type fetchTail struct {
	diverging *vtop.EpochOffset
	leader    *leaderHint
}

// close fills in what open left out. Whatever was appended to e.b since are the records.
func (e *fetchEncoder) close(code int16, high, start vtop.Offset, tail fetchTail) {
	h := e.b[e.head:]
	binary.BigEndian.PutUint16(h[4:], uint16(code))
	binary.BigEndian.PutUint64(h[6:], uint64(high))
	binary.BigEndian.PutUint64(h[14:], uint64(high))
	if e.version >= 5 {
		binary.BigEndian.PutUint64(h[22:], uint64(start))
	}
	n := len(e.b) - e.records
	if !e.flexible {
		binary.BigEndian.PutUint32(e.b[e.records-4:], uint32(n))
		return
	}
	e.compactLength(n)
	tags := len(e.b)
	e.b = append(e.b, 0) // how many
	if d := tail.diverging; d != nil {
		e.b[tags]++
		e.b = append(e.b, 0, 13) // number and size
		e.int32(int32(d.Epoch))
		e.int64(int64(d.Offset))
		e.noTags()
	}
	if l := tail.leader; l != nil {
		e.b[tags]++
		e.b = append(e.b, 1, 9)
		e.int32(l.leader)
		e.int32(l.epoch)
		e.noTags()
	}
}

// compactLength writes the length of n record bytes before them, moving them where the guess was wrong.
func (e *fetchEncoder) compactLength(n int) {
	var width [binary.MaxVarintLen32]byte
	w := binary.PutUvarint(width[:], uint64(n)+1)
	at := e.records - lengthGuess
	switch {
	case w < lengthGuess:
		copy(e.b[at+w:], e.b[e.records:])
		e.b = e.b[:at+w+n]
	case w > lengthGuess:
		e.b = append(e.b, width[:w-lengthGuess]...) // only makes room
		copy(e.b[at+w:], e.b[e.records:e.records+n])
	}
	copy(e.b[at:], width[:w])
}

func (e *fetchEncoder) endTopic() { e.noTags() }

// end closes the answer with the addresses of the brokers that were named as leaders.
func (e *fetchEncoder) end(leaders []broker) {
	if len(leaders) == 0 {
		e.noTags()
	} else {
		e.b = append(e.b, 1, 0) // one tag, number 0
		at := len(e.b)
		e.addresses(leaders)
		list := slices.Clone(e.b[at:])
		e.b = append(binary.AppendUvarint(e.b[:at], uint64(len(list))), list...)
	}
	binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4))
}

func (e *fetchEncoder) addresses(brokers []broker) {
	e.arrayLen(len(brokers))
	for _, b := range brokers {
		e.int32(b.id)
		e.string(b.host)
		e.int32(b.port)
		if b.rack == nil {
			e.b = append(e.b, 0)
		} else {
			e.string(*b.rack)
		}
		e.noTags()
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.b = binary.AppendUvarint(e.b, uint64(len(s))+1)
	} else {
		e.int16(int16(len(s)))
	}
	e.b = append(e.b, s...)
}

func (e *fetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.b = binary.AppendUvarint(e.b, uint64(n)+1)
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.b = append(e.b, 0)
	}
}

func (e *fetchEncoder) int16(v int16) { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
