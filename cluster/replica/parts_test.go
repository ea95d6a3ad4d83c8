package replica

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

func TestWaitList_AnswersInOrderOfOffsets(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var list waitList
	var slow []vtop.Offset // the obvious twin
	for range 5000 {
		if rng.IntN(3) > 0 {
			last := vtop.Offset(rng.IntN(1000))
			list.add(waiter{base: last, last: last})
			slow = append(slow, last)
			continue
		}
		end := vtop.Offset(rng.IntN(1000))
		got := list.below(end, nil)
		var want []vtop.Offset
		slow = slices.DeleteFunc(slow, func(o vtop.Offset) bool {
			if o < end {
				want = append(want, o)
			}
			return o < end
		})
		slices.Sort(want)
		if len(got) != len(want) || list.len() != len(slow) {
			t.Fatalf("below %d: %d answered and %d left, want %d and %d", end, len(got), list.len(), len(want), len(slow))
		}
		for i := range got {
			if got[i].last != want[i] {
				t.Fatalf("below %d: %d is answered where %d is due", end, got[i].last, want[i])
			}
		}
	}
}

func TestWaitList_ExpiresOnlyWhatIsLate(t *testing.T) {
	var list waitList
	now := time.Now()
	for i := range 10 {
		list.add(waiter{last: vtop.Offset(i), expires: now.Add(time.Duration(i-5) * time.Second)})
	}
	if late := list.expired(now, nil); len(late) != 5 || list.len() != 5 {
		t.Fatalf("%d late, %d left", len(late), list.len())
	}
	if rest := list.all(nil); len(rest) != 5 || rest[0].last != 5 || list.len() != 0 {
		t.Fatalf("%+v", rest)
	}
}

func TestSentQueue_CountsWhatIsOnItsWay(t *testing.T) {
	var q sentQueue
	for i := range 1000 {
		q.push(vtop.Offset(i+1), 10)
	}
	if freed := q.upTo(400); freed != 4000 || q.bytes != 6000 {
		t.Fatalf("freed %d, %d left", freed, q.bytes)
	}
	if freed := q.upTo(399); freed != 0 {
		t.Fatalf("an older acknowledgement freed %d", freed)
	}
	q.push(2000, 5)
	if freed := q.clear(); freed != 6005 || q.bytes != 0 {
		t.Fatalf("freed %d, %d left", freed, q.bytes)
	}
}

// A range is with one worker at a time, and a change made meanwhile brings it back: no wake-up is lost (G7).
func TestWork_OneWorkerARangeAndNothingLost(t *testing.T) {
	w := newWork()
	ranges := make([]vtop.Range, 8)
	for i := range ranges {
		ranges[i].Index = int32(i)
	}
	var mu sync.Mutex
	busy, wanted, seen := map[vtop.Range]bool{}, map[vtop.Range]int{}, map[vtop.Range]int{}
	var workers, adders sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				r, ok := w.take()
				if !ok {
					return
				}
				mu.Lock()
				if busy[r] {
					t.Errorf("two workers have range %d", r.Index)
				}
				busy[r] = true
				seen[r] = wanted[r]
				mu.Unlock()
				mu.Lock()
				busy[r] = false
				mu.Unlock()
				w.done(r)
			}
		})
	}
	for range 4 {
		adders.Go(func() {
			for range 2000 {
				r := ranges[rand.IntN(len(ranges))]
				mu.Lock()
				wanted[r]++
				mu.Unlock()
				w.add(r)
			}
		})
	}
	adders.Wait()
	deadline := time.Now().Add(patience)
	for settled := false; !settled; {
		mu.Lock()
		settled = true
		for r, n := range wanted {
			settled = settled && seen[r] == n
		}
		mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("lost: wanted %v, seen %v", wanted, seen)
		}
		time.Sleep(time.Millisecond)
	}
	w.close()
	workers.Wait()
}

func TestWatches_WakeOnceAndStop(t *testing.T) {
	w := newWatches()
	r, other := vtop.Range{Index: 1}, vtop.Range{Index: 2}
	wake := make(chan struct{}, 1)
	stop := w.add([]vtop.Range{r, other}, wake)
	w.moved(r)
	w.moved(other) // does not block on a channel that is full
	<-wake
	select {
	case <-wake:
		t.Fatal("woken twice for one look")
	default:
	}
	stop()
	stop()
	w.moved(r)
	if len(wake) != 0 || len(w.of) != 0 || w.any.Load() != 0 {
		t.Fatalf("still registered: %d woken, %d ranges, %d", len(wake), len(w.of), w.any.Load())
	}
}

func TestBackoff_GrowsAndIsBounded(t *testing.T) {
	for n := range 100 {
		if d := pauseAfter(n); d < shortestPause/2 || d > longestPause {
			t.Fatalf("pause %d is %s", n, d)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var b backoff
	if b.wait(ctx) {
		t.Fatal("waited for a context that has ended")
	}
}
