package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Observer is a client that only looks while a drill runs: it reads the topic from the start as records come, and asks
// for start and end offsets over and over. Check then holds what it saw: nothing went back (K3), and what was read
// once at an offset is what stands there in the end (K2).
type Observer struct {
	t      testing.TB
	cancel context.CancelFunc
	wg     sync.WaitGroup
	client *kgo.Client

	mu     sync.Mutex
	errs   []error
	read   map[place]uint64
	next   map[int32]int64
	asked  int
	latest map[int32]seen
	first  map[int32]int64
	told   []Witness
	// startsBack are answers with a lower start than one before.
	startsBack []startBack
}

type startBack struct {
	r     int32
	asked time.Time
	err   error
}

// Witness is told of what an Observer sees, one call at a time for each range and kind.
type Witness interface {
	// SawRecords: records that stand one behind the other from offset on.
	SawRecords(r int32, offset int64, ids []uint64, at time.Time)
	// SawEnd: an answer to the question for the end, and the epoch of the leader that gave it. It may be a deposed one's that was
	// not yet due to know: then others may have heard of a later end before it was asked.
	SawEnd(r int32, end int64, epoch int32, asked, answered time.Time)
}

type place struct {
	r      int32
	offset int64
}

type seen struct {
	epoch  int32
	offset int64
}

// StartObserver begins to look at topic until Check, and tells witnesses of what it sees.
func StartObserver(t testing.TB, seeds []string, topic string, witnesses ...Witness) *Observer {
	t.Helper()
	client, err := kgo.NewClient(append(ClientOptions(seeds), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := &Observer{
		t: t, cancel: cancel, client: client,
		read: map[place]uint64{}, next: map[int32]int64{}, latest: map[int32]seen{}, first: map[int32]int64{}, told: witnesses,
	}
	t.Cleanup(o.Stop)
	o.wg.Go(func() { o.consume(ctx) })
	o.wg.Go(func() { o.ask(ctx, topic) })
	return o
}

// Stop ends looking; Check does too.
func (o *Observer) Stop() {
	o.cancel()
	o.wg.Wait()
	o.client.Close()
}

func (o *Observer) consume(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := o.client.PollFetches(ctx)
		o.mu.Lock()
		fetches.EachError(func(_ string, r int32, err error) {
			var loss *kgo.ErrDataLoss
			if errors.As(err, &loss) {
				o.errs = append(o.errs, fmt.Errorf("K3: the client of range %d was told of lost data: %w", r, err))
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			id, err := PayloadID(r.Value)
			if err != nil {
				o.errs = append(o.errs, fmt.Errorf("range %d offset %d: %w", r.Partition, r.Offset, err))
			}
			if r.Offset < o.next[r.Partition] {
				o.errs = append(o.errs, fmt.Errorf("K3: range %d went back from offset %d to %d", r.Partition, o.next[r.Partition], r.Offset))
			}
			o.next[r.Partition] = r.Offset + 1
			o.read[place{r.Partition, r.Offset}] = id
		})
		o.mu.Unlock()
		o.tellRecords(fetches)
	}
}

// tellRecords tells the witnesses what came, each run of records without a gap by itself.
func (o *Observer) tellRecords(fetches kgo.Fetches) {
	if len(o.told) == 0 {
		return
	}
	now := time.Now()
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		var ids []uint64
		for i, r := range p.Records {
			id, err := PayloadID(r.Value)
			if err != nil {
				return // it is among the errors already
			}
			ids = append(ids, id)
			if i+1 < len(p.Records) && p.Records[i+1].Offset == r.Offset+1 {
				continue
			}
			for _, w := range o.told {
				w.SawRecords(p.Partition, r.Offset-int64(len(ids))+1, ids, now)
			}
			ids = nil
		}
	})
}

func (o *Observer) ask(ctx context.Context, topic string) {
	adm := kadm.NewClient(o.client)
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		asked := time.Now()
		ends, endErr := adm.ListEndOffsets(bounded, topic)
		answered := time.Now()
		startsAsked := time.Now()
		starts, startErr := adm.ListStartOffsets(bounded, topic)
		cancel()
		o.mu.Lock()
		if endErr == nil {
			o.asked++
			ends.Each(o.sawEnd)
			ends.Each(func(l kadm.ListedOffset) { o.tellEnd(l, asked, answered) })
		}
		if startErr == nil {
			starts.Each(func(l kadm.ListedOffset) { o.sawStart(l, startsAsked) })
		}
		o.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (o *Observer) tellEnd(l kadm.ListedOffset, asked, answered time.Time) {
	if l.Err != nil {
		return
	}
	for _, w := range o.told {
		w.SawEnd(l.Partition, l.Offset, l.LeaderEpoch, asked, answered)
	}
}

// sawEnd ignores the word of an older leader epoch than one heard before, as every client does.
func (o *Observer) sawEnd(l kadm.ListedOffset) {
	before := o.latest[l.Partition]
	if l.Err != nil || l.LeaderEpoch < before.epoch {
		return
	}
	if l.Offset < before.offset {
		o.errs = append(o.errs, fmt.Errorf("K3: the end of range %d went back from %d (epoch %d) to %d (epoch %d)", l.Partition, before.offset, before.epoch, l.Offset, l.LeaderEpoch))
	}
	o.latest[l.Partition] = seen{l.LeaderEpoch, l.Offset}
}

func (o *Observer) sawStart(l kadm.ListedOffset, asked time.Time) {
	if l.Err != nil {
		return
	}
	if before := o.first[l.Partition]; l.Offset < before {
		o.startsBack = append(o.startsBack, startBack{l.Partition, asked, fmt.Errorf("K3: the start of range %d went back from %d to %d", l.Partition, before, l.Offset)})
	}
	o.first[l.Partition] = max(o.first[l.Partition], l.Offset)
}

// ForgiveStarts forgets lower starts that were told at a moment at which, by the word of deposed, a holder that had no longer the
// lease was not yet due to know: an answer for the start doesn't bear its leader's epoch. It returns how many.
func (o *Observer) ForgiveStarts(deposed func(r int32, asked time.Time) bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := len(o.startsBack)
	o.startsBack = slices.DeleteFunc(o.startsBack, func(s startBack) bool { return deposed(s.r, s.asked) })
	return before - len(o.startsBack)
}

// Check stops looking and fails the test on any breach; final is what stands in the topic now.
func (o *Observer) Check(final []Read) {
	o.t.Helper()
	o.Stop()
	for _, err := range o.Breaches(final) {
		o.t.Error(err)
	}
	o.t.Logf("observer: %d records read as they came, the end asked for %d times", len(o.read), o.asked)
}

// Breaches are those of what was seen so far, while the observer goes on; final is what stands in the topic now, and
// nobody writes.
func (o *Observer) Breaches(final []Read) []error {
	stands := map[place]uint64{}
	for _, r := range final {
		stands[place{r.Range, r.Offset}] = r.ID
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	errs := append([]error(nil), o.errs...)
	for _, s := range o.startsBack {
		errs = append(errs, s.err)
	}
	for p, id := range o.read {
		if now, ok := stands[p]; ok && now != id {
			errs = append(errs, fmt.Errorf("K2: range %d offset %d was read as record %d, now record %d stands there", p.r, p.offset, id, now))
		} else if !ok && p.offset >= o.first[p.r] {
			errs = append(errs, fmt.Errorf("I7: range %d offset %d was read as record %d, and is gone", p.r, p.offset, id))
		}
	}
	if len(errs) > 10 {
		errs = append(errs[:10], fmt.Errorf("and %d more", len(errs)-10))
	}
	return errs
}

// Seen is how many records were read as they came, and how many answers told the end.
func (o *Observer) Seen() (records, ends int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.read), o.asked
}
