package iolock

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestMutex_OneAtATime(t *testing.T) {
	var m Mutex
	var wg sync.WaitGroup
	n := 0
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				m.Lock()
				n++
				m.Unlock()
			}
		})
	}
	wg.Wait()
	if n != 8000 {
		t.Fatalf("%d of 8000 steps counted", n)
	}
}

// TestMutex_TimeGoesOnForThoseWhoWait is why the package exists: with a sync.Mutex this test hangs.
func TestMutex_TimeGoesOnForThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Mutex
		m.Lock()
		go func() {
			time.Sleep(time.Hour)
			m.Unlock()
		}()
		began := time.Now()
		m.Lock()
		if waited := time.Since(began); waited != time.Hour {
			t.Fatalf("waited %s", waited)
		}
		m.Unlock()
	})
}

func TestMutex_UnlockOfAnUnlockedOnePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	new(Mutex).Unlock()
}

func TestMutex_TryLock(t *testing.T) {
	var m Mutex
	if !m.TryLock() {
		t.Fatal("an unlocked Mutex was not taken")
	}
	if m.TryLock() {
		t.Fatal("a Mutex was taken twice")
	}
	m.Unlock()
	if m.Lock(); m.TryLock() {
		t.Fatal("a locked Mutex was taken")
	}
}
