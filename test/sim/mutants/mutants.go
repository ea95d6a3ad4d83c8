// Package mutants lists mistakes that are planted into vtop to see whether the simulation finds them, or another test where lives
// would have to be too many. A mutant is a few edits of vtop's own files. They are never in the tree: the test that is to find it is built
// with an overlay that holds the edited files.
package mutants

// Mutant is one planted mistake.
type Mutant struct {
	Name string
	// Lives is within how many lives, from seed 1 on, the simulation must find it.
	Lives int
	Edits []Edit
}

// Elsewhere is a mistake that lives do not show reliably: what it needs is one order of steps that are microseconds apart. A test that tries
// every order must fail with it.
type Elsewhere struct {
	Name string
	// Package, from the module root, and Test in it.
	Package, Test string
	Edits         []Edit
}

// Edit replaces the one place of a file that reads Old.
type Edit struct {
	File     string // from the module root
	Old, New string
}

// All are the mutants, each a mistake that some system has really made or that an invariant forbids.
var All = []Mutant{
	{"acknowledge before the sync", 60, []Edit{{
		"storage/flush.go", "if err := l.store.gather.sync(h); err != nil {", "if l.store.gather.leave(); err != nil {",
	}}},
	{"forget the promise", 60, []Edit{{
		"storage/promises.go", "if err := s.journal.promise(entries); err != nil {", "if err := error(nil); err != nil {",
	}}},
	{"a minority promotes", 200, []Edit{{
		"cluster/protocol/promotion.go", "if len(given) >= p.Voters.Majority() && own {", "if len(given) >= 1 && own {",
	}}},
	{"start with the own log, not the longest", 60, []Edit{{
		"cluster/protocol/promotion.go", "	case self < c.End:\n		c.Step = StepFetch", "	case self < c.End:\n		c.Step, c.End, c.Sources = StepStart, self, nil",
	}}},
	{"a minority commits", 100, []Edit{{
		"cluster/protocol/quorum.go", "	return ends[n-need]\n", "	return ends[n-1]\n",
	}}},
	{"truncate to the known end at the start", 100, []Edit{
		{"cluster/protocol/reconcile.go", "	cut, ok := view.Table.Cut(runs, end)\n", "	cut, ok := max(known, 0), known < end\n"},
		{"storage/reconcile.go", "	p.at, p.needed = p.table.Cut(l.runs, l.end)\n", "	p.at, p.needed = max(p.floor, 0), p.floor < l.end\n"},
	}},
	{"never cut", 100, []Edit{
		{"cluster/protocol/reconcile.go", "	case !ok:\n		return Decision{Action: Keep}", "	case !ok || cut >= 0:\n		return Decision{Action: Keep}"},
		{"storage/reconcile.go", "	if !p.needed {\n		return nil", "	if p.needed = false; !p.needed {\n		return nil"},
	}},
	{"keep the epoch after a restart", 60, []Edit{
		{"ids.go", "l.Holder == n && l.Incarnation == i", "l.Holder == n && i > 0"},
		{"cluster/controller/grant.go", "case incarnation != n.Incarnation || v.Incarnation > incarnation:", "case n.Incarnation == 0:"},
		{"cluster/replica/engine.go", "	start, _ := rg.Epochs.Last()\n", "	if rg.Started {\n		return nil\n	}\n	start, _ := rg.Epochs.Last()\n"},
		{"cluster/protocol/leading.go", "	case known > start:\n", "	case known > start && known < 0:\n"},
		{"cluster/replica/engine.go", "	if dropped == rg.Lease.Epoch {\n", `	if log == nil {
		if log = e.store.Get(s.r); log == nil {
			return
		}
		log.OnDurable(func(_ vtop.Offset, err error) { s.onDurable(log, err) })
		s.mu.Lock()
		s.log = log
		s.mu.Unlock()
	}
	if dropped == rg.Lease.Epoch {
`},
	}},
	{"reuse offsets after a failed write", 100, []Edit{
		{"storage/append.go", "	if c.epoch <= l.bannedEpoch {", "	if c.epoch < 0 {"},
		{"cluster/replica/engine.go", "	if ld := s.leading.Load(); ld != nil {\n		e.giveUp(s, ld.epoch, err)", "	if ld := s.leading.Load(); ld != nil && ld.epoch < 0 {\n		e.giveUp(s, ld.epoch, err)"},
	}},
	{"answer a duplicate from the table", 200, []Edit{{
		"cluster/replica/read.go", "		base, last = dup.Base, dup.Last\n", "		done(Result{Base: dup.Base, LogStart: ld.log.Start()})\n		return\n",
	}}},
	{"do not look for duplicates", 60, []Edit{{
		"storage/append.go", "if c.batch.ProducerID() != batch.NoProducer {", "if c.batch.ProducerID() < -1 {",
	}}},
	{"catalogue before it is committed", 600, []Edit{{
		"cluster/replica/duties.go", "known || seg.End > ld.highWatermark() || seg.Base < rg.CatalogueEnd", "known || seg.Base < rg.CatalogueEnd",
	}}},
	{"serve above the high watermark", 100, []Edit{{
		"cluster/replica/read.go", "	hw, start := ld.highWatermark(), ld.log.Start()\n", "	hw, start := ld.log.End(), ld.log.Start()\n",
	}}},
	{"tell the end before the epoch's start is committed", 1500, []Edit{{
		"cluster/replica/read.go", "	if hw >= ld.start {\n		res.HighWatermark = hw", "	if hw >= 0 {\n		res.HighWatermark = hw",
	}}},
	{"a span ends at the next epoch only", 300, []Edit{{
		"epochs.go", "for keep > 0 && t[keep-1].Start >= start {", "for keep > 0 && t[keep-1].Start > start+1000 {",
	}}},
	{"a wiped replica votes", 100, []Edit{
		{"fsm/rules.go", "	t.loseAll(n.Name, reason, at)\n	t.endCoordinators(n.Name)\n", "	t.endCoordinators(n.Name)\n"},
		{"cluster/replica/settle.go", "if rg.EverStarted() && mine.Role == fsm.Voter && !e.isNew(mine.ID) {", "if rg.EverStarted() && mine.Role > 100 {"},
	}},
	{"believe what comes from a source", 600, []Edit{{
		"storage/staging_write.go", "	if err := m.VerifyChunk(i, data); err != nil {\n		return", "	if err := error(nil); err != nil {\n		return",
	}}},
	{"a floor above what is committed", 100, []Edit{{
		"cluster/protocol/leading.go", "return Position{l.epoch, l.version, l.high, quorum}, true", "return Position{l.epoch, l.version, max(l.high, l.marks.Of(l.self)), quorum}, true",
	}}},
	{"acknowledge what is not durable here", 300, []Edit{{
		"cluster/replica/session.go", "	durable := f.log.Durable()\n", "	durable := f.log.End()\n",
	}}},
	{"recover without the producer state of the last sealed segment", 200, []Edit{{
		"storage/recover_producers.go", "			if t, err := decodeProducers(&l.store.opt, m.Producers); err == nil {", "			if t, err := newProducerTable(&l.store.opt), error(nil); err == nil {",
	}}},
	{"adopt without producer state", 200, []Edit{{
		"storage/adopt.go", "	l.open(\"\")\n	s.mu.Lock()\n", "	l.open(\"\")\n	l.producers = newProducerTable(&s.opt)\n	s.mu.Lock()\n",
	}}},
}

// InOrders are the mistakes that depend on the order of a few steps.
var InOrders = []Elsewhere{
	{"drop the joint majority", "cluster/protocol", "TestExplore_SwarmKeepsInvariants", []Edit{{
		"cluster/protocol/quorum.go", "	if v.Joint() {\n		end = min(", "	if v.Joint() && v.Next == nil {\n		end = min(",
	}}},
	{"close a tail without the fence", "cluster/replica", "TestSealTail_LeaseMovesBetweenAnyTwoSteps", []Edit{{
		"storage/close_tail.go", "l.store.opt.Fence.Hold(l.rng, e, vtop.FenceLead, func() error {", "func(unfenced func() error) error { return unfenced() }(func() error {",
	}}},
}
