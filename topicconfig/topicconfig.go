package topicconfig

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

// ErrInvalid: a key is unknown or a value is not allowed. Final; the text says what is allowed.
var ErrInvalid = errors.New("invalid topic configuration")

// Keys, as Kafka names them.
const (
	RetentionMs          = "retention.ms"
	RetentionBytes       = "retention.bytes"
	SegmentBytes         = "segment.bytes"
	SegmentMs            = "segment.ms"
	MaxMessageBytes      = "max.message.bytes"
	MinInsyncReplicas    = "min.insync.replicas"
	CleanupPolicy        = "cleanup.policy"
	CompressionType      = "compression.type"
	MessageTimestampType = "message.timestamp.type"
)

// Type is how a value reads; the numbers are those of Kafka's DescribeConfigs.
type Type int8

// The types that occur.
const (
	TypeString Type = 2
	TypeInt    Type = 3
	TypeLong   Type = 5
	TypeList   Type = 7
)

// Key describes one configuration key.
type Key struct {
	Name    string
	Type    Type
	Default string
	Doc     string

	min, max int64    // of numbers, both inclusive
	infinite bool     // -1 is allowed and means no limit
	only     []string // of strings: the allowed values
}

// MaxBatchBytes is the largest max.message.bytes; storage, peers and the client face size their limits by it.
const MaxBatchBytes = 64 << 20

const maxLong = int64(^uint64(0) >> 1)

// keys is sorted by name.
var keys = []Key{
	{Name: CleanupPolicy, Type: TypeList, Default: "delete", only: []string{"delete"},
		Doc: "What happens to old segments. Only delete is supported: compaction is not."},
	{Name: CompressionType, Type: TypeString, Default: "producer", only: []string{"producer"},
		Doc: "Batches are kept as the producer compressed them; the server never recompresses."},
	{Name: MaxMessageBytes, Type: TypeInt, Default: "1048588", min: 1, max: MaxBatchBytes,
		Doc: "Largest record batch, in bytes, as sent (after compression)."},
	{Name: MessageTimestampType, Type: TypeString, Default: "CreateTime", only: []string{"CreateTime", "LogAppendTime"},
		Doc: "Timestamps are those of the producer, or that of the leader's clock when it takes a batch."},
	{Name: MinInsyncReplicas, Type: TypeInt, Default: "1", min: 1, max: 1 << 15,
		Doc: "Accepted up to the majority of the replicas, which acks=all always waits for."},
	{Name: RetentionBytes, Type: TypeLong, Default: "-1", min: 0, max: maxLong, infinite: true,
		Doc: "Bytes kept per range; -1 for no limit."},
	{Name: RetentionMs, Type: TypeLong, Default: "604800000", min: 0, max: maxLong, infinite: true,
		Doc: "Milliseconds a segment is kept after it was sealed, whatever times its records have; -1 for no limit."},
	{Name: SegmentBytes, Type: TypeInt, Default: "1073741824", min: 1 << 20, max: 1<<31 - 1,
		Doc: "Size, in bytes, at which a segment is closed; retention.bytes, if that is less (but 1 MiB at least)."},
	{Name: SegmentMs, Type: TypeLong, Default: "604800000", min: 1, max: maxLong,
		Doc: "Milliseconds after its first append at which a segment is closed; retention.ms, if that is less (but ten seconds at least)."},
}

// Keys returns all known keys, sorted by name. The caller must not change them.
func Keys() []Key { return keys }

// Lookup finds a key by its name.
func Lookup(name string) (Key, bool) {
	i := sort.Search(len(keys), func(i int) bool { return keys[i].Name >= name })
	if i < len(keys) && keys[i].Name == name {
		return keys[i], true
	}
	return Key{}, false
}

// Allowed says in words which values the key takes.
func (k Key) Allowed() string {
	switch {
	case k.only != nil:
		return "only " + strings.Join(k.only, ", ")
	case k.infinite:
		return fmt.Sprintf("-1 for no limit, or %d to %d", k.min, k.max)
	default:
		return fmt.Sprintf("%d to %d", k.min, k.max)
	}
}

// Check refuses a value that the key does not take, with ErrInvalid and what is allowed.
func (k Key) Check(value string) error {
	if k.only != nil {
		for _, v := range k.only {
			if value == v {
				return nil
			}
		}
		return fmt.Errorf("%w: %s=%q: allowed: %s", ErrInvalid, k.Name, value, k.Allowed())
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || (n < k.min || n > k.max) && !(k.infinite && n == -1) {
		return fmt.Errorf("%w: %s=%q: allowed: %s", ErrInvalid, k.Name, value, k.Allowed())
	}
	return nil
}

// Validate checks what a client wants to set on a topic whose ranges have the given number of replicas
// (0: not known, then limits that depend on it are not checked).
func Validate(config map[string]string, replicas int) error {
	for _, name := range sortedNames(config) {
		key, ok := Lookup(name)
		if !ok {
			return fmt.Errorf("%w: unknown key %q: known are %s", ErrInvalid, name, strings.Join(Names(), ", "))
		}
		if err := key.Check(config[name]); err != nil {
			return err
		}
	}
	if replicas > 0 {
		majority := int64(replicas/2 + 1)
		if n := number(config, MinInsyncReplicas); n > majority {
			return fmt.Errorf("%w: %s=%d: at most the majority of %d replicas, %d, which acks=all waits for",
				ErrInvalid, MinInsyncReplicas, n, replicas, majority)
		}
	}
	return nil
}

// Names returns the names of all keys, sorted.
func Names() []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.Name
	}
	return out
}

// Config is a topic's configuration as the cluster uses it. A limit of -1 is none.
type Config struct {
	// RetentionTime is negative for no limit.
	RetentionTime     time.Duration
	RetentionBytes    int64
	SegmentBytes      int64
	SegmentAge        time.Duration
	MaxMessageBytes   int
	MinInsyncReplicas int
}

// Parse fills in the defaults. A key that this version does not know, or a value that it does not take (another
// version put it there), counts as not set: a node never stops over a configuration that was agreed on.
func Parse(config map[string]string) Config {
	return Config{
		RetentionTime:     millis(number(config, RetentionMs)),
		RetentionBytes:    number(config, RetentionBytes),
		SegmentBytes:      number(config, SegmentBytes),
		SegmentAge:        millis(number(config, SegmentMs)),
		MaxMessageBytes:   int(number(config, MaxMessageBytes)),
		MinInsyncReplicas: int(number(config, MinInsyncReplicas)),
	}
}

// Bounds below which retention has no segment closed; segment.bytes and segment.ms themselves can be less.
const (
	leastRollBytes = 1 << 20
	leastRollAge   = 10 * time.Second
)

// RollBytes is the size at which a segment is closed: segment.bytes, or retention.bytes if that is less. Only whole segments can go, so that a larger one would keep
// many times what was asked for: a range holds less than twice retention.bytes and one batch.
func (c Config) RollBytes() int64 {
	if c.RetentionBytes < 0 {
		return c.SegmentBytes
	}
	return min(c.SegmentBytes, max(c.RetentionBytes, leastRollBytes))
}

// RollAge is the time after its first append at which a segment is closed: segment.ms, or retention.ms if that is less. So a record is gone
// after twice retention.ms, also where little is written.
func (c Config) RollAge() time.Duration {
	if c.RetentionTime < 0 {
		return c.SegmentAge
	}
	return min(c.SegmentAge, max(c.RetentionTime, leastRollAge))
}

// BatchLimit is Parse(config).MaxMessageBytes without the rest: it is asked for every batch.
func BatchLimit(config map[string]string) int {
	if _, ok := config[MaxMessageBytes]; !ok {
		return defaultBatchLimit
	}
	return int(number(config, MaxMessageBytes))
}

const defaultBatchLimit = 1048588

// AppendTime says whether records get the leader's time: message.timestamp.type=LogAppendTime. It is asked for every batch.
func AppendTime(config map[string]string) bool {
	return config[MessageTimestampType] == "LogAppendTime"
}

// number reads a numeric key from config, or its default.
func number(config map[string]string, name string) int64 {
	key, ok := Lookup(name)
	if !ok {
		return 0
	}
	value, set := config[name]
	if !set || key.Check(value) != nil {
		value = key.Default
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// millis is a duration of n milliseconds, without overflow; negative for none.
func millis(n int64) time.Duration {
	if n < 0 {
		return -1
	}
	const most = maxLong / int64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}

func sortedNames(config map[string]string) []string {
	out := make([]string, 0, len(config))
	for name := range config {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}
