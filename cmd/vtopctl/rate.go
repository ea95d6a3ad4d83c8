package main

import (
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// byteRate is a flag in bytes a second: 50MB/s, 50MiB/s, 1.5GB/s, or a plain number. MB is a million, MiB is 1024 × 1024.
type byteRate int64

// String implements pflag.Value.
func (r *byteRate) String() string {
	if *r == 0 {
		return ""
	}
	return size(int64(*r)) + "/s"
}

// Type implements pflag.Value.
func (r *byteRate) Type() string { return "rate" }

// Set implements pflag.Value.
func (r *byteRate) Set(text string) error {
	bare := strings.TrimSpace(text)
	if n := len(bare) - len("/s"); n > 0 && strings.EqualFold(bare[n:], "/s") {
		bare = bare[:n]
	}
	v, err := humanize.ParseBytes(bare)
	if err != nil || v > math.MaxInt64 {
		return usagef("%q is no rate: want bytes a second, as 50MB/s or 50MiB/s", text)
	}
	if v == 0 {
		return usagef("%q would move nothing: leave the flag out for the default budget, which yields to clients", text)
	}
	if v < minRate {
		return usagef("%q is too slow to get anywhere: want %s/s or more", text, size(minRate))
	}
	*r = byteRate(v)
	return nil
}

// minRate brings a chunk of a segment in about a quarter of a minute.
const minRate = 64 << 10

// size shows bytes; what is not known is a question mark.
func size(n int64) string {
	if n < 0 {
		return "?"
	}
	return humanize.IBytes(uint64(n))
}

func rateText(perSecond int64) string {
	if perSecond <= 0 {
		return "the default budget"
	}
	return size(perSecond) + "/s"
}

// left shows how long something will still take; empty if nobody can tell.
func left(ms int64) string {
	if ms == adminapi.Unknown {
		return ""
	}
	return (time.Duration(ms) * time.Millisecond).Round(time.Second).String() + " left"
}
