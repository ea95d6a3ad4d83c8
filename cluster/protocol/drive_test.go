package protocol

import "math/rand/v2"

// driver walks a world at random. Single steps rarely get anywhere, so now and then it strings together the steps
// of something that a cluster does all the time: a promotion by some majority, replication to one follower.
// The strings are made of ordinary actions; a trace replays without the driver.
type driver struct {
	w     *world
	rng   *rand.Rand
	acts  []action
	trace []action
	bad   violation
}

// try takes the first possible action that want accepts; it reports whether there was one.
func (d *driver) try(want func(a *action) bool) bool {
	if d.bad != "" {
		return false
	}
	d.acts = d.w.actions(d.acts[:0])
	for i := range d.acts {
		if want(&d.acts[i]) {
			d.take(d.acts[i])
			return d.bad == ""
		}
	}
	return false
}

func (d *driver) take(a action) {
	d.trace = append(d.trace, a)
	d.bad = d.w.step(a)
}

func (d *driver) catchUp(n int) {
	last := len(d.w.hist) - 1
	d.try(func(a *action) bool { return a.kind == actApply && a.n == n && a.k == last })
}

// promote grants the range to n and takes it through the promotion with a random majority.
func (d *driver) promote(n int) {
	if !d.try(func(a *action) bool { return a.kind == actGrant && a.n == n }) {
		return
	}
	d.catchUp(n)
	for _, j := range d.rng.Perm(d.w.lim.nodes) {
		if d.w.nodes[n].asked == 0 || d.w.choice(n).Step != StepWait {
			break
		}
		d.catchUp(j)
		rep := d.w.nodes[j].rep
		d.try(func(a *action) bool { return a.kind == actDeliver && a.n == j && a.msg.kind == msgAsk })
		d.try(func(a *action) bool {
			return a.kind == actDeliver && a.n == n && a.msg.kind == msgAnswer && a.msg.rep == rep
		})
	}
	for d.try(func(a *action) bool { return a.kind == actFetch && a.n == n }) {
	}
	d.try(func(a *action) bool { return a.kind == actStart && a.n == n })
	if d.rng.IntN(8) == 0 {
		return
	}
	d.try(func(a *action) bool { return a.kind == actCommit && a.msg.kind == msgStart })
	d.catchUp(n)
}

// replicate brings node n to the end of the log of the leader that its view names, and its acknowledgement back.
func (d *driver) replicate(n int) {
	if d.rng.IntN(4) > 0 {
		d.catchUp(n)
	}
	for d.try(func(a *action) bool { return a.kind == actDeliver && a.n == n && a.msg.kind == msgAppend }) {
	}
	end := len(d.w.nodes[n].log)
	d.try(func(a *action) bool { return a.kind == actSync && a.n == n && a.k == end })
	rep := d.w.nodes[n].rep
	for d.try(func(a *action) bool { return a.kind == actDeliver && a.msg.kind == msgAck && a.msg.rep == rep }) {
	}
}

// settle carries reports to the metadata and the metadata to a leader.
func (d *driver) settle() {
	for d.try(func(a *action) bool { return a.kind == actCommit && a.msg.kind == msgReport }) {
	}
	for i := range d.w.lim.nodes {
		if d.w.nodes[i].lead != nil {
			d.catchUp(i)
		}
	}
}

// write produces on a leader, and perhaps syncs it.
func (d *driver) write() {
	if d.try(func(a *action) bool { return a.kind == actProduce }) && d.rng.IntN(3) > 0 {
		n := d.trace[len(d.trace)-1].n
		end := len(d.w.nodes[n].log)
		d.try(func(a *action) bool { return a.kind == actSync && a.n == n && a.k == end })
	}
}

// change proposes some change of voters, and perhaps carries it to the metadata.
func (d *driver) change() {
	d.try(func(a *action) bool { return a.kind == actChange && d.rng.IntN(2) == 0 })
	if d.rng.IntN(2) == 0 {
		d.try(func(a *action) bool { return a.kind == actCommit && a.msg.kind == msgChange })
	}
	if d.rng.IntN(2) == 0 {
		d.settle()
	}
}

// burst does one of the strings.
func (d *driver) burst() {
	n := d.rng.IntN(d.w.lim.nodes)
	switch x := d.rng.IntN(16); {
	case x < 3:
		d.promote(n)
	case x < 8:
		d.replicate(n)
	case x < 11:
		d.write()
	case x < 13:
		d.settle()
	default:
		if d.w.lim.changes > 0 {
			d.change()
		}
	}
}

// scene brings a fresh world to where a walk is to begin.
type scene func(d *driver)

func sceneEmpty(*driver) {}

// sceneLed: n0 leads epoch 1 and every voter has acknowledged its start.
func sceneLed(d *driver) {
	if d.w.lim.spares > 0 {
		defer d.learn()
	}
	for d.w.nodes[0].lead == nil && d.w.last().view.Lease.Epoch < d.w.lim.epochs {
		d.promote(0)
	}
	for i := range d.w.lim.nodes {
		d.catchUp(i)
		d.replicate(i)
	}
}

// learn gives the last node a learner that catches up.
func (d *driver) learn() {
	last := d.w.lim.nodes - 1
	d.try(func(a *action) bool { return a.kind == actLearner && a.n == last })
	d.catchUp(0)
	d.catchUp(last)
	d.replicate(last)
}

// sceneGrown: as sceneLed, with a learner on the last node that has caught up, and all reported.
func sceneGrown(d *driver) {
	sceneLed(d)
	d.settle()
}

// sceneRivals: n0 leads epoch 1 and has written; a majority without it has promised epoch 2 to the last node.
func sceneRivals(d *driver) {
	sceneLed(d)
	d.write()
	last := d.w.lim.nodes - 1
	d.try(func(a *action) bool { return a.kind == actGrant && a.n == last })
	for i := last; i > 0; i-- {
		d.catchUp(i)
	}
	for i := 1; i <= last; i++ {
		d.try(func(a *action) bool { return a.kind == actDeliver && a.n == i && a.msg.kind == msgAsk })
	}
}

// sceneRefused: as sceneGrown, but no position was reported, and the change of voters proposed was refused for it.
func sceneRefused(d *driver) {
	sceneLed(d)
	d.try(func(a *action) bool { return a.kind == actChange && a.change.Kind == AddVoter })
	d.try(func(a *action) bool { return a.kind == actCommit && a.msg.kind == msgChange })
	d.try(func(a *action) bool { return a.kind == actDeliver && a.msg.kind == msgRefused })
}

// sceneHalf: as sceneLed, and one record is committed by the barest majority.
func sceneHalf(d *driver) {
	sceneLed(d)
	d.write()
	for i := range d.w.lim.voters/2 + 1 {
		d.replicate(i)
	}
}

// sceneAgain: n0 leads epoch 1, then epoch 2, each with the majority of the first nodes.
func sceneAgain(d *driver) {
	sceneLed(d)
	d.promote(0)
}

// sceneOvertaken: epoch 1 of n0 has started, but n0 learns of it only together with the grant of epoch 2 to the last
// node, which it promises, and which starts.
func sceneOvertaken(d *driver) {
	last := d.w.lim.nodes - 1
	for _, step := range []struct{ holder, voter int }{{0, 1}, {last, 0}} {
		d.try(func(a *action) bool { return a.kind == actGrant && a.n == step.holder })
		d.catchUp(step.holder)
		d.catchUp(step.voter)
		d.try(func(a *action) bool { return a.kind == actDeliver && a.n == step.voter && a.msg.kind == msgAsk })
		d.try(func(a *action) bool { return a.kind == actDeliver && a.n == step.holder && a.msg.kind == msgAnswer })
		d.try(func(a *action) bool { return a.kind == actStart && a.n == step.holder })
		d.try(func(a *action) bool { return a.kind == actCommit && a.msg.kind == msgStart })
	}
	d.catchUp(last)
}
