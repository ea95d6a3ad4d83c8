package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// errMalformed: a request does not have the shape of its API and version. The connection ends: Kafka has no
// answer for bytes that cannot be read.
var errMalformed = errors.New("malformed request")

// Limits of one request (I13). kmsg makes slices for the counts that a request states, at up to 32 bytes for each
// byte of the request; so the guard first finds every element there, and no more of them than this.
const (
	maxElements = 100_000
	maxTags     = 128
	maxTagBytes = 64 << 10
	// elementCost is what an element comes to at most when it is decoded, run and answered, in bytes; freeElements of them are
	// a connection's fixed allowance. More are reserved in the server's budget for work, so that many connections with many
	// elements each take their turns.
	elementCost  = 1 << 10
	freeElements = 64
)

// kind is how one field of a request lies in its bytes.
type kind uint8

const (
	kInt8 kind = iota
	kInt16
	kInt32
	kInt64
	kString         // int16 length, or compact
	kNullableString // the same, null allowed
	kBytes          // int32 length or compact, null allowed
	kArray          // int32 count or compact; elements are structs of fields
	kNullableArray  // the same, null allowed
	kInt32s         // array of int32, not structs: no tags
	kNullableInt32s
	kInt64s
	kStrings // array of strings, not structs
	kNullableStrings
	kUUID
	kNullableStruct // int8: -1 for null, else the fields of elem follow
)

// field is one field of a request in versions from since on, and below before unless that is 0. A known tag is not in the
// shape: the guard skips what is tagged, within its limits.
type field struct {
	kind   kind
	since  int16
	before int16
	elem   []field
}

// guard walks a request of the given shape and refuses it unless every element that it counts is really there.
type guard struct {
	src      []byte
	flexible bool
	version  int16
	most     int // elements
	elements int
	tags     int
	tagBytes int
}

// check refuses a body that hasn't the shape of its API, with errMalformed and what is wrong, and counts its elements. Bytes
// behind the last field are ignored, as Kafka does. It allocates nothing but the error.
func (a *api) check(version int16, flexible bool, body []byte) (elements int, err error) {
	g := guard{src: body, flexible: flexible, version: version, most: a.most()}
	if err := g.fields(a.shape); err != nil {
		return 0, fmt.Errorf("%w: %s: %w at byte %d of %d", errMalformed, a.name, err, len(body)-len(g.src), len(body))
	}
	return g.elements, nil
}

var (
	errShort    = errors.New("bytes end early")
	errNull     = errors.New("null where a value is needed")
	errTooMany  = errors.New("too many elements")
	errTags     = fmt.Errorf("more than %d tags or %d bytes of them", maxTags, maxTagBytes)
	errUvarint  = errors.New("length does not fit 32 bits")
	errNegative = errors.New("negative length")
)

func (g *guard) fields(shape []field) error {
	for i := range shape {
		if f := &shape[i]; g.version < f.since || f.before > 0 && g.version >= f.before {
			continue
		}
		if err := g.field(&shape[i]); err != nil {
			return err
		}
	}
	if g.flexible {
		return g.tagSection()
	}
	return nil
}

func (g *guard) field(f *field) error {
	switch f.kind {
	case kInt8:
		return g.skip(1)
	case kInt16:
		return g.skip(2)
	case kInt32:
		return g.skip(4)
	case kInt64:
		return g.skip(8)
	case kString:
		return g.sized(2, false)
	case kNullableString:
		return g.sized(2, true)
	case kBytes:
		return g.sized(4, true)
	case kUUID:
		return g.skip(16)
	case kNullableStruct:
		return g.nullableStruct(f.elem)
	case kInt32s, kNullableInt32s:
		return g.array(f.kind == kNullableInt32s, func() error { return g.skip(4) })
	case kInt64s:
		return g.array(false, func() error { return g.skip(8) })
	case kStrings:
		return g.array(false, func() error { return g.sized(2, false) })
	case kNullableStrings:
		return g.array(true, func() error { return g.sized(2, false) })
	default:
		return g.array(f.kind == kNullableArray, func() error { return g.fields(f.elem) })
	}
}

// nullableStruct walks a struct behind the byte that says whether it is there.
func (g *guard) nullableStruct(elem []field) error {
	if len(g.src) == 0 {
		return errShort
	}
	null := int8(g.src[0]) == -1 // nothing else, for kmsg
	g.src = g.src[1:]
	if null {
		return nil
	}
	return g.fields(elem)
}

func (g *guard) skip(n int) error {
	if n > len(g.src) {
		return errShort
	}
	g.src = g.src[n:]
	return nil
}

// sized walks a string or bytes: the length has width bytes, or is compact.
func (g *guard) sized(width int, nullable bool) error {
	n, err := g.length(width)
	switch {
	case err != nil:
		return err
	case n < 0 && !nullable:
		return errNull
	case n < 0:
		return nil
	}
	return g.skip(n)
}

func (g *guard) array(nullable bool, elem func() error) error {
	n, err := g.length(4)
	switch {
	case err != nil:
		return err
	case n < 0 && !nullable:
		return errNull
	case n > len(g.src): // every element takes a byte at least
		return errShort
	}
	for ; n > 0; n-- {
		if g.elements++; g.elements > g.most {
			return fmt.Errorf("%w: want at most %d", errTooMany, g.most)
		}
		if err := elem(); err != nil {
			return err
		}
	}
	return nil
}

// length reads a length; -1 is null. Whether that many bytes follow is for the caller to see.
func (g *guard) length(width int) (int, error) {
	if g.flexible {
		n, err := g.uvarint()
		return int(n) - 1, err
	}
	if width > len(g.src) {
		return 0, errShort
	}
	var n int
	if width == 2 {
		n = int(int16(binary.BigEndian.Uint16(g.src)))
	} else {
		n = int(int32(binary.BigEndian.Uint32(g.src)))
	}
	g.src = g.src[width:]
	if n < -1 {
		return 0, errNegative
	}
	return n, nil
}

// uvarint reads at most five bytes, and nothing above 2^31-1: kmsg would take that for a negative number.
func (g *guard) uvarint() (uint32, error) {
	n, size := binary.Uvarint(g.src)
	if size == 0 {
		return 0, errShort
	}
	if size < 0 || size > 5 || n > 1<<31-1 {
		return 0, errUvarint
	}
	g.src = g.src[size:]
	return uint32(n), nil
}

func (g *guard) tagSection() error {
	count, err := g.uvarint()
	if err != nil {
		return err
	}
	for ; count > 0; count-- {
		if _, err := g.uvarint(); err != nil {
			return err
		}
		size, err := g.uvarint()
		if err != nil {
			return err
		}
		g.tags++
		g.tagBytes += int(size)
		if g.tags > maxTags || g.tagBytes > maxTagBytes {
			return errTags
		}
		if err := g.skip(int(size)); err != nil {
			return err
		}
	}
	return nil
}
