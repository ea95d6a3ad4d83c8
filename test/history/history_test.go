package history

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const limit = time.Minute

// play is a range that works, and what its clients note: writers of which several are under way at a time, a reader, and one
// who asks for the end.
type play struct {
	rng   *rand.Rand
	h     *History
	now   time.Time
	log   []uint64
	last  uint64
	read  int
	under []call
}

type call struct {
	id   uint64
	at   time.Time
	took int64 // offset; -1 until it is in the log
}

func newPlay(seed uint64, copies bool) *play {
	h := New(copies)
	return &play{rng: rand.New(rand.NewPCG(seed, 1)), h: h, now: h.began}
}

// tick lets a moment pass and gives the one in the middle of it.
func (p *play) tick() time.Time {
	p.now = p.now.Add(time.Millisecond)
	return p.now
}

// run makes so many steps.
func (p *play) run(steps int) {
	for range steps {
		switch p.rng.IntN(6) {
		case 0, 1:
			if len(p.under) < 16 {
				p.last++
				p.under = append(p.under, call{id: p.last, at: p.tick(), took: -1})
			}
		case 2, 3:
			p.settleOne()
		case 4:
			n := p.rng.IntN(len(p.log) - p.read + 1)
			if n > 0 {
				p.h.Read(int64(p.read), append([]uint64(nil), p.log[p.read:p.read+n]...), p.tick())
				p.read += n
			}
		default:
			from, end := p.tick(), int64(len(p.log))
			p.h.End(end, from, p.tick())
		}
	}
}

// settleOne puts a record that is under way into the log, or answers its client; some are never answered.
func (p *play) settleOne() {
	if len(p.under) == 0 {
		return
	}
	i := p.rng.IntN(len(p.under))
	c := &p.under[i]
	if c.took < 0 {
		c.took = int64(len(p.log))
		p.log = append(p.log, c.id)
		return
	}
	if p.rng.IntN(20) == 0 {
		p.h.Unanswered(c.id, c.at)
	} else {
		p.h.Appended(c.id, c.took, c.at, p.tick())
	}
	p.under = append(p.under[:i], p.under[i+1:]...)
}

// quiet answers all that is under way; what never reached the log stays without an answer.
func (p *play) quiet() {
	for _, c := range p.under {
		if c.took < 0 {
			p.h.Unanswered(c.id, c.at)
		} else {
			p.h.Appended(c.id, c.took, c.at, p.tick())
		}
	}
	p.under = nil
}

func (p *play) check() error { return p.h.Check(append([]uint64(nil), p.log...), limit) }

func TestHistory_OfALogThatWorks(t *testing.T) {
	for seed := range uint64(20) {
		p := newPlay(seed, false)
		for window := range 3 {
			p.run(2000)
			p.quiet()
			if err := p.check(); err != nil {
				t.Fatalf("seed %d, window %d: %v", seed, window, err)
			}
			p.now = p.h.window // a moment later
		}
	}
}

// A checker that finds nothing is worth nothing: each of these is planted into a history that is right without it.
func TestHistory_FindsWhatIsPlanted(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(p *play)
		says  string
	}{
		"lost at the end": {func(p *play) {
			p.h.Appended(p.last+1, int64(len(p.log)), p.tick(), p.tick())
		}, "lost"},
		"lost in the middle": {func(p *play) {
			p.log = append(p.log[:5], p.log[6:]...)
		}, "lost"},
		"duplicated": {func(p *play) {
			p.log = append(p.log, p.log[len(p.log)-1])
		}, "not written"},
		"reordered": {func(p *play) {
			p.log[7], p.log[8] = p.log[8], p.log[7]
		}, ""},
		"rewritten after it was acknowledged": {func(p *play) {
			p.log[9] = p.last + 100
		}, "lost"},
		"rewritten after it was read, never acknowledged": {func(p *play) {
			at := int64(len(p.log))
			p.h.Unanswered(p.last+1, p.tick())
			p.h.Read(at, []uint64{p.last + 1}, p.tick())
			p.h.Appended(p.last+2, at, p.tick(), p.tick())
			p.log = append(p.log, p.last+2)
		}, "rewritten"},
		"two readers see two values": {func(p *play) {
			p.h.Read(3, []uint64{p.log[4]}, p.tick())
		}, "rewritten"},
		"read before it was written": {func(p *play) {
			at := int64(len(p.log))
			p.h.Read(at, []uint64{p.last + 1}, p.tick())
			p.h.Appended(p.last+1, at, p.tick(), p.tick())
			p.log = append(p.log, p.last+1)
		}, "before it was committed"},
		"the end goes back": {func(p *play) {
			p.h.End(int64(len(p.log)-1), p.tick(), p.tick())
		}, "not shown after"},
		"the end is ahead": {func(p *play) {
			p.h.End(int64(len(p.log)+1), p.tick(), p.tick())
		}, "before it was committed"},
		"nobody wrote it": {func(p *play) {
			p.log = append(p.log, p.last+7)
		}, "not written"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				p := newPlay(seed, false)
				p.run(1000)
				p.quiet()
				p.read = len(p.log)
				p.tick()
				c.plant(p)
				err := p.check()
				if err == nil || errors.Is(err, ErrUndecided) || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("seed %d: %v, want one that says %q", seed, err, c.says)
				}
			}
		})
	}
}

// What a window began with is held as well as what it brought.
func TestHistory_EarlierWindows(t *testing.T) {
	p := newPlay(3, false)
	p.run(500)
	p.quiet()
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	p.h.Read(2, []uint64{p.log[3]}, p.tick())
	if err := p.check(); err == nil {
		t.Error("a read of an offset of an earlier window is not held against it")
	}
	p.log[4]++
	if err := p.check(); err == nil || !strings.Contains(err.Error(), "had record") {
		t.Errorf("a record of an earlier window was rewritten: %v", err)
	}
	p.log = p.log[:10]
	if err := p.check(); err == nil || !strings.Contains(err.Error(), "ended at") {
		t.Errorf("the log became shorter: %v", err)
	}
}

// A producer that isn't idempotent may leave copies, but only of what it sent.
func TestHistory_Copies(t *testing.T) {
	for _, copies := range []bool{false, true} {
		p := newPlay(4, copies)
		p.run(500)
		p.quiet()
		p.log = append(p.log, p.log[len(p.log)-1], p.log[len(p.log)-2])
		if err := p.check(); (err == nil) != copies {
			t.Errorf("copies allowed %v: %v", copies, err)
		}
	}
	p := newPlay(4, true)
	p.run(500)
	p.quiet()
	p.log = append(p.log, p.last+1)
	if err := p.check(); err == nil {
		t.Error("a record that nobody sent is taken for a copy")
	}
}
