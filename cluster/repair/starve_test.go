package repair

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// slowDisk writes what it is given in order, so many bytes a second.
type slowDisk struct {
	mu     sync.Mutex
	rate   float64
	freeAt time.Time
}

// write returns when the bytes are written, and how long that took.
func (d *slowDisk) write(n int) time.Duration {
	d.mu.Lock()
	began := time.Now()
	if d.freeAt.Before(began) {
		d.freeAt = began
	}
	d.freeAt = d.freeAt.Add(time.Duration(float64(n) / d.rate * float64(time.Second)))
	wait := time.Until(d.freeAt)
	d.mu.Unlock()
	time.Sleep(wait)
	return wait
}

// L3: a repair writes to a disk that clients write to as well, and the disk is so slow that the repair alone could keep it busy.
// With the default budget the clients get what they ask for, soon; when they are gone, the repair takes most of the disk, without anybody setting
// anything back.
func TestBudget_DoesNotStarveClientsOfASlowDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const clientBytes, every, writers = 64 << 10, 20 * time.Millisecond, 9 // 3 MiB/s of 24
		d, b := &slowDisk{rate: 24 << 20}, newBudget()
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		var mu sync.Mutex
		repaired, clients := 0, true
		var oldest time.Duration // how long the client's last batch waited
		for range writers {
			wg.Go(func() {
				for b.take(ctx, chunkSize) == nil {
					for range 4 {
						d.write(chunkSize / 4)
					}
					mu.Lock()
					repaired += chunkSize
					mu.Unlock()
				}
			})
		}
		wg.Go(func() { // as a node tells its own pressure, ten times a second
			for ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
				mu.Lock()
				pressure := 0
				if clients {
					pressure = max(25, min(100, int(oldest*100/(50*time.Millisecond))))
				}
				mu.Unlock()
				b.observe(pressure)
			}
		})
		var waits []time.Duration
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(every) {
			wait := d.write(clientBytes)
			mu.Lock()
			oldest = wait
			mu.Unlock()
			waits = append(waits, wait)
		}
		mu.Lock()
		beside := repaired
		clients, repaired = false, 0
		mu.Unlock()
		const idle = 20
		time.Sleep(idle * time.Second)
		mu.Lock()
		alone := float64(repaired) / idle / d.rate
		mu.Unlock()
		cancel()
		wg.Wait()
		steady := waits[len(waits)/4:] // the first seconds tell the budget that there are clients
		slices.Sort(steady)
		half, most := steady[len(steady)/2], steady[len(steady)*95/100]
		t.Logf("beside clients: half of their writes within %s, 95 of 100 within %s, the repair got %.1f MiB/s; alone it takes %.0f %% of the disk",
			half, most, float64(beside)/20/(1<<20), alone*100)
		if half > 30*time.Millisecond || most > 150*time.Millisecond {
			t.Errorf("clients waited %s (half), %s (95 of 100)", half, most)
		}
		if beside == 0 {
			t.Error("the repair did not move at all")
		}
		if alone < 0.7 {
			t.Errorf("without clients the repair takes %.0f %% of the disk", alone*100)
		}
	})
}
