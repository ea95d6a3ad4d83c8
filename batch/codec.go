package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/vtop-log/vtop"
)

// maxWindow caps the history in bytes that a zstd frame may ask for, which the decoder allocates.
const maxWindow = 8 << 20

// decompress returns what body holds, at most limit bytes of it: vtop.ErrBatchTooLarge beyond. Memory grows with what
// is really decoded, not with what a header promises.
func decompress(codec Codec, body []byte, limit int) (plain []byte, err error) {
	switch codec {
	case CodecGzip:
		plain, err = drainGzip(body, limit)
	case CodecSnappy:
		plain, err = decodeSnappy(body, limit)
	case CodecLZ4:
		plain, err = drain(lz4.NewReader(bytes.NewReader(body)), limit)
	case CodecZstd:
		plain, err = drainZstd(body, limit)
	default:
		return nil, fmt.Errorf("%w: codec %d", vtop.ErrUnsupportedBatch, codec)
	}
	if err != nil && !errors.Is(err, vtop.ErrBatchTooLarge) {
		return nil, fmt.Errorf("%w: decompress %s: %w", vtop.ErrCorruptBatch, codec, err)
	}
	return plain, err
}

func tooLarge(limit int) error {
	return fmt.Errorf("%w: more than %d bytes when decompressed", vtop.ErrBatchTooLarge, limit)
}

// drain reads to the end.
func drain(r io.Reader, limit int) ([]byte, error) {
	plain, err := io.ReadAll(io.LimitReader(r, min(int64(limit), math.MaxInt64-1)+1))
	if err != nil {
		return nil, err
	}
	if len(plain) > limit {
		return nil, tooLarge(limit)
	}
	return plain, nil
}

func drainGzip(body []byte, limit int) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return drain(r, limit)
}

func drainZstd(body []byte, limit int) ([]byte, error) {
	r, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return drain(r, limit)
}

// xerialMagic begins the framing of the Java library that Kafka uses: magic, two version numbers of 4 bytes, then
// blocks of raw snappy, each after its length in 4 bytes. Other clients write one raw block and no framing.
const (
	xerialMagic  = "\x82SNAPPY\x00"
	xerialHeader = len(xerialMagic) + 8
)

func decodeSnappy(body []byte, limit int) ([]byte, error) {
	if len(body) < xerialHeader || string(body[:len(xerialMagic)]) != xerialMagic {
		return appendSnappy(nil, body, limit)
	}
	var plain []byte
	for rest := body[xerialHeader:]; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		n := int64(binary.BigEndian.Uint32(rest))
		rest = rest[4:]
		if n > int64(len(rest)) {
			return nil, io.ErrUnexpectedEOF
		}
		var err error
		if plain, err = appendSnappy(plain, rest[:n], limit); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return plain, nil
}

// maxSnappyRatio bounds what a block may claim: a copy of 64 bytes takes at least two.
const maxSnappyRatio = 64

func appendSnappy(plain, block []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, err
	}
	if n > limit-len(plain) {
		return nil, tooLarge(limit)
	}
	if n > maxSnappyRatio*len(block) {
		return nil, fmt.Errorf("block of %d bytes claims to hold %d", len(block), n)
	}
	decoded, err := s2.Decode(nil, block)
	return append(plain, decoded...), err
}

// compress is for Build. It panics where the libraries say that memory cannot fail.
func compress(codec Codec, plain []byte) []byte {
	var out bytes.Buffer
	var w io.WriteCloser
	switch codec {
	case CodecNone:
		return plain
	case CodecSnappy:
		return s2.EncodeSnappy(nil, plain)
	case CodecGzip:
		w = gzip.NewWriter(&out)
	case CodecLZ4:
		w = lz4.NewWriter(&out)
	case CodecZstd:
		z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err)
		}
		w = z
	default:
		panic(fmt.Sprintf("batch: codec %d", codec))
	}
	if _, err := w.Write(plain); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}
