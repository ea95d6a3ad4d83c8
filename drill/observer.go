package drill

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Observer is a client that only looks: it reads the topic as records come, and asks for its starts and ends over and
// over. What it saw is held against what stands in the end: nothing went back (K3), and what was read once at an offset
// stands there for ever (K2).
type Observer struct {
	client *kgo.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	breaches []Breach
	read     map[place]uint64
	next     map[int32]int64
	asked    int64
	latest   map[int32]seenEnd
	first    map[int32]int64
}

type seenEnd struct {
	epoch  int32
	offset int64
}

// StartObserver begins to look at topic with client, which consumes it, until Stop. The client is the observer's.
func StartObserver(client *kgo.Client, topic string) *Observer {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Observer{
		client: client, cancel: cancel, read: map[place]uint64{}, next: map[int32]int64{},
		latest: map[int32]seenEnd{}, first: map[int32]int64{},
	}
	o.wg.Go(func() { o.consume(ctx) })
	o.wg.Go(func() { o.ask(ctx, topic) })
	return o
}

func (o *Observer) consume(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := o.client.PollFetches(ctx)
		o.mu.Lock()
		fetches.EachError(func(_ string, r int32, err error) {
			var loss *kgo.ErrDataLoss
			if errors.As(err, &loss) {
				o.breaches = append(o.breaches, breach(K3, "the reader of range %d was told of lost data: %v", r, err))
			}
		})
		fetches.EachRecord(o.sawRecord)
		o.mu.Unlock()
	}
}

func (o *Observer) sawRecord(r *kgo.Record) {
	if r.Offset < o.next[r.Partition] {
		o.breaches = append(o.breaches, breach(K3, "the reader of range %d went back from offset %d to %d", r.Partition, o.next[r.Partition], r.Offset))
	}
	o.next[r.Partition] = r.Offset + 1
	o.read[place{r.Partition, r.Offset}] = sumOf(r.Value)
}

const askEvery = 50 * time.Millisecond

func (o *Observer) ask(ctx context.Context, topic string) {
	adm := kadm.NewClient(o.client)
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
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
		case <-tick.C:
		}
	}
}

// sawEnd passes over the word of an older leader epoch than one heard before, as every client does.
func (o *Observer) sawEnd(l kadm.ListedOffset) {
	before := o.latest[l.Partition]
	if l.Err != nil || l.LeaderEpoch < before.epoch {
		return
	}
	if l.Offset < before.offset {
		o.breaches = append(o.breaches, breach(K3, "the end of range %d went back from %d (epoch %d) to %d (epoch %d)", l.Partition, before.offset, before.epoch, l.Offset, l.LeaderEpoch))
	}
	o.latest[l.Partition] = seenEnd{l.LeaderEpoch, l.Offset}
}

func (o *Observer) sawStart(l kadm.ListedOffset) {
	if l.Err != nil {
		return
	}
	if l.Offset < o.first[l.Partition] {
		o.breaches = append(o.breaches, breach(K3, "the start of range %d went back from %d to %d", l.Partition, o.first[l.Partition], l.Offset))
	}
	o.first[l.Partition] = l.Offset
}

// Reached gives the next offset that is to be read of each range.
func (o *Observer) Reached() map[int32]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make(map[int32]int64, len(o.next))
	for r, next := range o.next {
		out[r] = next
	}
	return out
}

// Counts are the records read and the times that the end was asked for.
func (o *Observer) Counts() (read, asked int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int64(len(o.read)), o.asked
}

// Stop ends looking.
func (o *Observer) Stop() {
	o.cancel()
	o.wg.Wait()
	o.client.Close()
}

// Check gives the breaches of a stopped observer; final is what stands in the topic now.
func (o *Observer) Check(final []Read) []Breach {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append(append([]Breach(nil), o.breaches...), compareRead(o.read, final, o.first)...)
}

// compareRead holds what was read as it came against what stands now, at or above starts.
func compareRead(read map[place]uint64, final []Read, starts map[int32]int64) (out []Breach) {
	stands := make(map[place]uint64, len(final))
	for _, r := range final {
		stands[place{r.Range, r.Offset}] = r.Sum
	}
	for p, sum := range read {
		if now, ok := stands[p]; ok && now != sum {
			out = append(out, breach(K2, "what was read at offset %s is not what stands there now", p))
		} else if !ok && p.offset >= starts[p.r] {
			out = append(out, breach(K2, "what was read at offset %s is gone", p))
		}
	}
	return out
}
