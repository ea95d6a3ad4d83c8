package topicconfig

import (
	"errors"
	"sort"
	"strings"
	"testing"
	"time"
)

func TestKeys_SortedAndDefaultsValid(t *testing.T) {
	if !sort.StringsAreSorted(Names()) {
		t.Fatalf("keys are not sorted, Lookup would miss some: %v", Names())
	}
	for _, k := range Keys() {
		if err := k.Check(k.Default); err != nil {
			t.Errorf("default of %s: %v", k.Name, err)
		}
		if k.Doc == "" {
			t.Errorf("%s has no documentation", k.Name)
		}
	}
	if BatchLimit(nil) != Parse(nil).MaxMessageBytes {
		t.Errorf("BatchLimit %d, Parse %d", BatchLimit(nil), Parse(nil).MaxMessageBytes)
	}
}

func TestValidate(t *testing.T) {
	cases := []struct {
		name     string
		config   map[string]string
		replicas int
		want     string // part of the error; "" for none
	}{
		{"nothing set", nil, 3, ""},
		{"retention without limit", map[string]string{RetentionMs: "-1", RetentionBytes: "-1"}, 3, ""},
		{"retention below -1", map[string]string{RetentionMs: "-2"}, 3, "-1 for no limit"},
		{"not a number", map[string]string{SegmentBytes: "1g"}, 3, "allowed: 1048576 to 2147483647"},
		{"empty", map[string]string{SegmentBytes: ""}, 3, "allowed"},
		{"segment too small", map[string]string{SegmentBytes: "14"}, 3, "1048576"},
		{"compaction", map[string]string{CleanupPolicy: "compact"}, 3, "only delete"},
		{"compaction and deletion", map[string]string{CleanupPolicy: "compact,delete"}, 3, "only delete"},
		{"recompression", map[string]string{CompressionType: "zstd"}, 3, "only producer"},
		{"append time", map[string]string{MessageTimestampType: "LogAppendTime"}, 3, ""},
		{"some other time", map[string]string{MessageTimestampType: "logappendtime"}, 3, "only CreateTime, LogAppendTime"},
		{"unknown key", map[string]string{"flush.ms": "1"}, 3, "unknown key \"flush.ms\": known are cleanup.policy"},
		{"insync up to the majority", map[string]string{MinInsyncReplicas: "2"}, 3, ""},
		{"insync above the majority", map[string]string{MinInsyncReplicas: "3"}, 3, "majority of 3 replicas, 2"},
		{"insync with unknown replicas", map[string]string{MinInsyncReplicas: "3"}, 0, ""},
		{"batch too large for anyone", map[string]string{MaxMessageBytes: "67108865"}, 3, "67108864"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := Validate(c.config, c.replicas)
			switch {
			case c.want == "" && err != nil:
				t.Fatal(err)
			case c.want != "" && (err == nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("got %v, want ErrInvalid with %q", err, c.want)
			}
		})
	}
}

func TestParse_TakesWhatWasSet(t *testing.T) {
	got := Parse(map[string]string{RetentionMs: "1500", RetentionBytes: "7", SegmentMs: "9223372036854775807",
		SegmentBytes: "2097152", MaxMessageBytes: "100", MinInsyncReplicas: "2"})
	want := Config{RetentionTime: 1500 * time.Millisecond, RetentionBytes: 7, SegmentBytes: 2 << 20,
		SegmentAge: time.Duration(maxLong/int64(time.Millisecond)) * time.Millisecond, MaxMessageBytes: 100, MinInsyncReplicas: 2}
	if got != want {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
}

func TestParse_IgnoresWhatAnotherVersionSet(t *testing.T) {
	if got := Parse(map[string]string{SegmentBytes: "huge", "new.key": "1"}); got != Parse(nil) {
		t.Fatalf("got %+v, want the defaults", got)
	}
}

func FuzzValidate(f *testing.F) {
	f.Add(RetentionMs, "-1")
	f.Add(MaxMessageBytes, "1")
	f.Add("x", "")
	f.Fuzz(func(t *testing.T, name, value string) {
		config := map[string]string{name: value}
		if Validate(config, 3) != nil {
			return
		}
		c := Parse(config)
		if c.MaxMessageBytes < 1 || c.SegmentBytes < 1<<20 || c.RetentionBytes < -1 || c.MinInsyncReplicas > 2 || c.MinInsyncReplicas < 1 {
			t.Fatalf("%q=%q parsed to %+v", name, value, c)
		}
	})
}

// F6: a segment is closed before retention would have to keep many times what was asked for because of it.
func TestRoll_FollowsRetention(t *testing.T) {
	const mib, day = 1 << 20, 24 * time.Hour
	for _, c := range []struct {
		config map[string]string
		bytes  int64
		age    time.Duration
	}{
		{nil, 1024 * mib, 7 * day},
		{map[string]string{RetentionBytes: "-1", RetentionMs: "-1"}, 1024 * mib, 7 * day},
		{map[string]string{RetentionBytes: "10485760", RetentionMs: "3600000"}, 10 * mib, time.Hour},
		{map[string]string{RetentionBytes: "10485760", SegmentBytes: "2097152", RetentionMs: "3600000", SegmentMs: "60000"}, 2 * mib, time.Minute},
		{map[string]string{RetentionBytes: "0", RetentionMs: "0"}, mib, 10 * time.Second},
		{map[string]string{RetentionMs: "1000", SegmentMs: "100"}, 1024 * mib, 100 * time.Millisecond},
	} {
		got := Parse(c.config)
		if got.RollBytes() != c.bytes || got.RollAge() != c.age {
			t.Errorf("%v: closed at %d bytes and %s, want %d and %s", c.config, got.RollBytes(), got.RollAge(), c.bytes, c.age)
		}
	}
}
