package harness

import (
	"context"
	"errors"
	"fmt"
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
}

type place struct {
	r      int32
	offset int64
}

type seen struct {
	epoch  int32
	offset int64
}

// StartObserver begins to look at topic until Check.
func StartObserver(t testing.TB, seeds []string, topic string) *Observer {
	t.Helper()
	client, err := kgo.NewClient(append(ClientOptions(seeds), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := &Observer{
		t: t, cancel: cancel, client: client,
		read: map[place]uint64{}, next: map[int32]int64{}, latest: map[int32]seen{}, first: map[int32]int64{},
	}
	t.Cleanup(o.stop)
	o.wg.Go(func() { o.consume(ctx) })
	o.wg.Go(func() { o.ask(ctx, topic) })
	return o
}

func (o *Observer) stop() {
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
	}
}

func (o *Observer) ask(ctx context.Context, topic string) {
	adm := kadm.NewClient(o.client)
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		ends, endErr := adm.ListEndOffsets(bounded, topic)
		starts, startErr := adm.ListStartOffsets(bounded, topic)
		cancel()
		o.mu.Lock()
		if endErr == nil {
			o.asked++
			ends.Each(o.sawEnd)
		}
		if startErr == nil {
			starts.Each(o.sawStart)
		}
		o.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
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

func (o *Observer) sawStart(l kadm.ListedOffset) {
	if l.Err != nil {
		return
	}
	if l.Offset < o.first[l.Partition] {
		o.errs = append(o.errs, fmt.Errorf("K3: the start of range %d went back from %d to %d", l.Partition, o.first[l.Partition], l.Offset))
	}
	o.first[l.Partition] = l.Offset
}

// Check stops looking and fails the test on any breach; final is what stands in the topic now.
func (o *Observer) Check(final []Read) {
	o.t.Helper()
	o.stop()
	stands := map[place]uint64{}
	for _, r := range final {
		stands[place{r.Range, r.Offset}] = r.ID
	}
	for p, id := range o.read {
		if now, ok := stands[p]; ok && now != id {
			o.errs = append(o.errs, fmt.Errorf("K2: range %d offset %d was read as record %d, now record %d stands there", p.r, p.offset, id, now))
		} else if !ok && p.offset >= o.first[p.r] {
			o.errs = append(o.errs, fmt.Errorf("I7: range %d offset %d was read as record %d, and is gone", p.r, p.offset, id))
		}
	}
	if len(o.errs) > 10 {
		o.errs = append(o.errs[:10], fmt.Errorf("and %d more", len(o.errs)-10))
	}
	for _, err := range o.errs {
		o.t.Error(err)
	}
	o.t.Logf("observer: %d records read as they came, the end asked for %d times", len(o.read), o.asked)
}
