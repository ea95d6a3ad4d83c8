package sim

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// request is one combination of what can be asked of a repair. The words are those of the tables below.
type request struct {
	origin, destination, replace string
	// gone says that the destination is dead for good when the job is asked for, and that another voter goes after it.
	gone bool
}

var (
	origins      = []string{"operator", "heal", "drain", "replace", "reassign"}
	destinations = []string{"no replica", "a learner", "a voter", "a lost voter"}
	replaced     = []string{
		"nobody", "the destination", "a lost voter", "a lost voter whose learner follows", "a living voter", "the leader", "no voter", "a voter that is removed meanwhile",
	}
)

// refusal is the code with which the request is to be refused; 0 if it is to be taken.
func (q request) refusal() fsm.Code {
	own := q.destination == "a voter" || q.destination == "a lost voter"
	switch {
	case q.replace == "no voter", q.replace == "the destination" && !own:
		return fsm.CodeUnknownReplica
	case q.destination == "a lost voter" && q.replace != "nobody" && q.replace != "the destination":
		return fsm.CodeConflict
	case q.destination == "a voter":
		return fsm.CodeWhole
	}
	return 0
}

// TestRepairJobs_EveryOneEnds asks for every combination of a job: what makes no sense is refused, and what is taken ends within a
// bounded time, after which the range is whole: as many voters as are wished for, no learner, no job.
func TestRepairJobs_EveryOneEnds(t *testing.T) {
	everyRequest(t, false)
}

// TestRepairJobs_EveryOneEndsWithItsDestination asks for every combination that is taken of a destination that is dead for good, and
// takes another voter away then: the job, whoever asked for it, must not keep that one's place empty for ever.
func TestRepairJobs_EveryOneEndsWithItsDestination(t *testing.T) {
	everyRequest(t, true)
}

func everyRequest(t *testing.T, gone bool) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	seed, skipped := uint64(0), 0
	for _, origin := range origins {
		for _, destination := range destinations {
			for _, replace := range replaced {
				seed++
				q := request{origin, destination, replace, gone}
				if testing.Short() && seed%8 != 0 || gone && q.refusal() != 0 {
					skipped++
					continue
				}
				t.Run(strings.ReplaceAll(fmt.Sprintf("%s to %s for %s", origin, destination, replace), " ", "-"), func(t *testing.T) {
					cryptotest.SetGlobalRandom(t, seed)
					var res Result
					synctest.Test(t, func(*testing.T) { res = q.live(seed) })
					if len(res.Failures) > 0 {
						t.Errorf("after %s:\n%s\nthe last of the trace:\n%s", res.Took, strings.Join(res.Failures, "\n"), lastLines(res.Tail, 80))
					}
				})
			}
		}
	}
	t.Logf("%d combinations, %d left out", seed, skipped)
}

// live is a life of a range of five voters on seven hosts, in which one job is asked for; where two of them die, there is one host
// more. Every other one has sealed segments.
func (q request) live(seed uint64) Result {
	p := &plan{hosts: 7, replicas: 5, ranges: 1, zeros: -1, readers: 1, config: map[string]string{}}
	if q.gone {
		p.hosts++
	}
	if seed%2 == 0 {
		p.config["segment.bytes"] = "1500"
	}
	l := newLife(seed, p)
	return l.tell(func(ctx context.Context) {
		work, stop := context.WithCancel(ctx)
		var clients sync.WaitGroup
		one := &producer{client: newClient(l, "p00"), r: l.r(0), id: 1, idempotent: true}
		clients.Go(func() { one.run(work) })
		_ = sleep(ctx, 3*time.Second)
		q.story(ctx, l)
		stop()
		clients.Wait()
		last := ""
		if !l.await(ctx, "the range to be whole", settleLimit, func() bool { last = l.missing(); return last == "" }) {
			l.oracle.fail("missing at the end: %s", last)
			return
		}
		l.compare(ctx)
	})
}

// cast are the hosts that a story is about.
type cast struct {
	leader, destination, replace, other vtop.NodeName
}

func (q request) cast(l *life) (c cast) {
	rg, _ := l.ledger.now().Range(l.r(0))
	c.leader = rg.Lease.Holder
	var others, free []vtop.NodeName
	for _, h := range l.hosts {
		if _, votes := rg.VoterOn(h.name); !votes {
			free = append(free, h.name)
		} else if h.name != c.leader {
			others = append(others, h.name)
		}
	}
	c.destination, c.other = free[0], others[2]
	if q.destination == "a voter" || q.destination == "a lost voter" {
		c.destination = others[0]
	}
	switch q.replace {
	case "nobody":
	case "the destination":
		c.replace = c.destination
	case "the leader":
		c.replace = c.leader
	case "no voter":
		c.replace = free[1]
	default:
		c.replace = others[1]
	}
	return c
}

// story prepares the range, asks for the job, and waits for its end.
func (q request) story(ctx context.Context, l *life) {
	c := q.cast(l)
	if strings.HasPrefix(q.replace, "a lost voter") {
		l.lose(ctx, c.replace)
	}
	if q.replace == "a lost voter whose learner follows" {
		l.learn(ctx, c.replace)
	}
	switch q.destination {
	case "a learner":
		l.learn(ctx, c.destination)
	case "a lost voter":
		l.lose(ctx, c.destination)
	}
	if q.gone {
		l.host(c.destination).kill(false)
	}
	id, code := q.submit(ctx, l, c)
	if code != q.refusal() {
		l.oracle.fail("refused with %q, want %q", code, q.refusal())
	}
	if code != 0 {
		return
	}
	if q.replace == "a voter that is removed meanwhile" {
		l.remove(ctx, c.replace)
	}
	if q.gone {
		l.host(c.other).kill(false)
	}
	var job *fsm.RepairJob
	if !l.await(ctx, "the job to end", 3*time.Minute, func() bool {
		job, _ = l.ledger.now().Repair(id)
		return !job.Active()
	}) {
		l.oracle.fail("repair %d to %s for %q is %s: %s", id, job.Destination, job.Replace, job.Step, job.Waiting)
		return
	}
	l.trace.note("repair %d to %s for %q: %s %s %s", id, job.Destination, job.Replace, job.Step, job.Outcome, job.Cause)
}

// submit asks for the job, and what else is done with it by whoever asks.
func (q request) submit(ctx context.Context, l *life, c cast) (fsm.RepairID, fsm.Code) {
	item := fsm.RepairRequest{Range: l.r(0), Destination: c.destination, Replace: c.replace, Origin: fsm.OriginOperator, Reason: "by the story"}
	switch q.origin {
	case "heal":
		item.Origin = fsm.OriginHeal
	case "drain":
		item.Origin = fsm.OriginDrain
		if n := c.replace; n != "" && n != c.destination {
			l.tellLeader(ctx, &fsm.UpdateNode{Name: n, State: fsm.NodeDraining})
		}
	case "replace":
		item.Origin = fsm.OriginReplace
	}
	out := l.tellLeader(ctx, &fsm.SubmitRepairs{Items: []fsm.RepairRequest{item}})
	if refusal := out.Items[0].Refusal; refusal != nil {
		for job := range l.ledger.now().ActiveRepairs(l.r(0)) {
			if q.refusal() == 0 && q.origin == "drain" && job.Origin == fsm.OriginDrain && job.Replace == c.replace {
				return job.ID, 0 // the controller was quicker: a draining node waits for nobody to ask
			}
		}
		return 0, refusal.Code
	}
	if q.origin == "reassign" {
		rg, _ := l.ledger.now().Range(l.r(0))
		nodes := slices.DeleteFunc(slices.Clone(rg.Preferred), func(n vtop.NodeName) bool { return n == c.replace || n == c.destination })
		l.tellLeader(ctx, &fsm.SetPreferred{Items: []fsm.Preference{{Range: rg.ID, Nodes: append(nodes, c.destination)}}})
	}
	return out.Items[0].Repair, 0
}

// tellLeader has a command decided.
func (l *life) tellLeader(ctx context.Context, cmd fsm.Command) (out fsm.Outcome) {
	l.await(ctx, fmt.Sprintf("%s to be decided", cmd.Op()), time.Minute, func() bool {
		var err error
		i := slices.IndexFunc(l.hosts, func(h *host) bool { return h.running() != nil })
		out, err = l.ledger.propose(ctx, l.hosts[i].running(), cmd)
		return err == nil && out.Refusal == nil
	})
	return out
}

// lose calls the replica of a host lost, as the host itself would.
func (l *life) lose(ctx context.Context, name vtop.NodeName) {
	rg, _ := l.ledger.now().Range(l.r(0))
	rep, _ := rg.VoterOn(name)
	id := l.process(name).id
	l.tellLeader(ctx, &fsm.MarkReplicasLost{
		Node: name, Storage: id.Storage, Incarnation: id.Incarnation, Reason: "by the story", Items: []fsm.LostReplica{{Range: rg.ID, ReplicaID: rep.ID}},
	})
}

// change has the leader of the range change its replicas, once it does that, unless done says that nothing is left to change.
func (l *life) change(ctx context.Context, kind fsm.ReplicaChange, node vtop.NodeName, done func(rg *fsm.Range) (vtop.ReplicaID, bool)) {
	l.await(ctx, fmt.Sprintf("%s on %s", kind, node), time.Minute, func() bool {
		rg, _ := l.ledger.now().Range(l.r(0))
		id, ok := done(rg)
		if ok {
			return true
		}
		p := l.process(rg.Lease.Holder)
		if kind != fsm.AddLearner {
			node = ""
		}
		if p != nil && p.engine.Load() != nil {
			_, err := p.engine.Load().ChangeReplicas(ctx, rg.ID, kind, node, id)
			l.trace.note("%s %s %d: %v", kind, node, id, err)
		}
		return false
	})
}

func (l *life) learn(ctx context.Context, node vtop.NodeName) {
	l.change(ctx, fsm.AddLearner, node, func(rg *fsm.Range) (vtop.ReplicaID, bool) { _, ok := rg.On(node); return 0, ok })
}

func (l *life) remove(ctx context.Context, node vtop.NodeName) {
	l.change(ctx, fsm.RemoveVoter, node, func(rg *fsm.Range) (vtop.ReplicaID, bool) { rep, ok := rg.VoterOn(node); return rep.ID, !ok })
}
