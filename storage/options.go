package storage

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
)

// Fence is the lease view of the applied state machine, which storage asks before every effect on a log (I3).
type Fence interface {
	// Hold runs fn while the applied lease of r cannot change, if epoch e may act in this mode now; otherwise it
	// runs nothing and returns an error that is vtop.ErrFenced. It returns what fn returns. fn touches memory only
	// and never calls Hold (I4). It may be called by many goroutines at once.
	Hold(r vtop.Range, e vtop.Epoch, mode vtop.FenceMode, fn func() error) error
}

// Options configure a Store. The zero value of a field means the default told beside it; Fence is required.
type Options struct {
	// Fence is asked before every effect on a log.
	Fence Fence
	// Log takes what operators should see. Default: nothing is logged.
	Log hclog.Logger
	// OnDamage is called for every damage found, by the goroutine that found it and outside all locks of the
	// store. It must not block. Optional.
	OnDamage func(Damage)

	// SegmentBytes is the size at which a leader closes the tail. Default 256 MiB; at most 1 GiB. A log can be
	// given its own: see Log.SetSegmentBytes.
	SegmentBytes int64
	// MaxBatchBytes caps one record batch, on its way in and when read from disk. Default 16 MiB.
	MaxBatchBytes int
	// LogBufferBytes caps what one log has admitted and not yet synced. Default 16 MiB.
	LogBufferBytes int64
	// StoreBufferBytes caps the same over all logs. Default 64 MiB.
	StoreBufferBytes int64
	// OpenFiles caps the segment files kept open while nobody uses them. Default 1024.
	OpenFiles int
	// FlushParallel caps the flushes that are inside the kernel at once. Default 128.
	FlushParallel int
	// GatherSyncs is how many flushes that want to sync at the same time are gathered into one sync of the file system,
	// where that is known to be safe (see vfs.FS.SyncFS). Default 32, at most FlushParallel; negative: never.
	GatherSyncs int
	// Reserve is the free space in bytes under which nothing is admitted. Default: 5 % of the disk, at most
	// 1 GiB and at least 64 MiB.
	Reserve uint64
	// ZeroStepBytes is the largest step in which a tail is zeroed ahead. Default 8 MiB; negative: never.
	ZeroStepBytes int64
	// ZeroStoreBytes caps what is zeroed ahead and not yet used, over all tails. Default 256 MiB.
	ZeroStoreBytes int64
	// IndexBytes is the distance in bytes between two entries of an index. Default 32 KiB.
	IndexBytes int64
	// MaxProducers caps the idempotent producers that a log remembers. All replicas of a cluster must have the
	// same, since the producer state is part of a segment's root. Default 10 000.
	MaxProducers int
	// ProducerExpiry is how far, in batch time, a producer may lie behind before it is forgotten. As MaxProducers,
	// the same everywhere. Default 7 days.
	ProducerExpiry time.Duration
	// TickInterval is how often durable marks are written and free space is looked at. Default 1 s. Negative: only
	// when Tick is called, for tests.
	TickInterval time.Duration

	// PinIdle is how long a pin lives without use. Default 2 min.
	PinIdle time.Duration
	// MaxPins, PinFiles and PinBytes cap what all pins hold: how many they are, their open files (two for each segment,
	// beside OpenFiles), and the size of the segments. Defaults 64, 4096 and 1 TiB.
	MaxPins, PinFiles int
	PinBytes          int64
	// StageFiles caps the segments of one staging that are half received at once. Default 16.
	StageFiles int
	// Clock is the monotonic time since some moment, for the idle time of pins and the length of gathered syncs. Default:
	// the process's own.
	Clock func() time.Duration
}

const (
	defaultSegmentBytes     = 256 << 20
	maxSegmentBytes         = 1 << 30
	defaultMaxBatchBytes    = 16 << 20
	defaultLogBufferBytes   = 16 << 20
	defaultStoreBufferBytes = 64 << 20
	defaultOpenFiles        = 1024
	defaultFlushParallel    = 128
	defaultGatherSyncs      = 32
	defaultZeroStepBytes    = 8 << 20
	defaultZeroStoreBytes   = 256 << 20
	defaultIndexBytes       = 32 << 10
	defaultMaxProducers     = 10_000
	defaultProducerExpiry   = 7 * 24 * time.Hour
	defaultTickInterval     = time.Second
	defaultPinIdle          = 2 * time.Minute
	defaultMaxPins          = 64
	defaultPinFiles         = 4096
	defaultPinBytes         = 1 << 40
	defaultStageFiles       = 16
	maxReserve              = 1 << 30
	minReserve              = 64 << 20
	// openParallel is how many replicas are recovered at once: their reads and syncs overlap.
	openParallel = 8
)

// withDefaults returns the options with every zero field filled in, or says which field is out of bounds.
func (o Options) withDefaults() (Options, error) {
	if o.Fence == nil {
		return o, errors.New("storage options: Fence is missing")
	}
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	orDefault(&o.SegmentBytes, defaultSegmentBytes)
	orDefault(&o.MaxBatchBytes, defaultMaxBatchBytes)
	orDefault(&o.LogBufferBytes, defaultLogBufferBytes)
	orDefault(&o.StoreBufferBytes, defaultStoreBufferBytes)
	orDefault(&o.OpenFiles, defaultOpenFiles)
	orDefault(&o.FlushParallel, defaultFlushParallel)
	orDefault(&o.GatherSyncs, defaultGatherSyncs)
	o.GatherSyncs = min(o.GatherSyncs, o.FlushParallel) // no more than that can want to
	orDefault(&o.ZeroStepBytes, defaultZeroStepBytes)
	orDefault(&o.ZeroStoreBytes, defaultZeroStoreBytes)
	orDefault(&o.IndexBytes, defaultIndexBytes)
	orDefault(&o.MaxProducers, defaultMaxProducers)
	orDefault(&o.ProducerExpiry, defaultProducerExpiry)
	orDefault(&o.TickInterval, defaultTickInterval)
	orDefault(&o.PinIdle, defaultPinIdle)
	orDefault(&o.MaxPins, defaultMaxPins)
	orDefault(&o.PinFiles, defaultPinFiles)
	orDefault(&o.PinBytes, defaultPinBytes)
	orDefault(&o.StageFiles, defaultStageFiles)
	if o.Clock == nil {
		began := time.Now()
		o.Clock = func() time.Duration { return time.Since(began) }
	}
	switch {
	case o.SegmentBytes < 0 || o.SegmentBytes > maxSegmentBytes:
		return o, fmt.Errorf("storage options: SegmentBytes is %d, want 1 to %d", o.SegmentBytes, maxSegmentBytes)
	case o.MaxBatchBytes < 0 || int64(o.MaxBatchBytes) > maxSegmentBytes:
		return o, fmt.Errorf("storage options: MaxBatchBytes is %d, want 1 to %d", o.MaxBatchBytes, maxSegmentBytes)
	case o.LogBufferBytes < 0 || o.StoreBufferBytes < 0 || o.OpenFiles < 0 || o.FlushParallel < 0 ||
		o.IndexBytes < 0 || o.ZeroStoreBytes < 0 || o.MaxProducers < 0 || o.ProducerExpiry < 0 ||
		o.PinIdle < 0 || o.MaxPins < 0 || o.PinFiles < 0 || o.PinBytes < 0 || o.StageFiles < 0:
		return o, errors.New("storage options: a bound is negative")
	}
	return o, nil
}

func orDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}
