package inspect

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

var _ adminapi.StateHandler = (*Face)(nil)

// Nodes are asked for their present states first, which are equal where nothing is written; then for their state at an
// index that is to come, further ahead each time, because it must not have passed when the last of them is asked.
const (
	stateRounds = 5
	stateAhead  = 16
	stateGrowth = 4
	// stateWait is how long a node waits for that index; stateAsk how long it may take to answer then.
	stateWait = 2 * time.Second
	stateAsk  = 10 * time.Second
	// stateLimit bounds all of it.
	stateLimit = 40 * time.Second
)

// LocalStateHash implements adminapi.StateHandler. It costs the time to write the whole state once, and no memory; one is
// made at a time, beside whatever is applied meanwhile.
func (f *Face) LocalStateHash(ctx context.Context, index uint64, wait time.Duration) (*adminapi.StateHash, error) {
	n, err := f.attached()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	state, err := n.StateAt(ctx, index)
	if err != nil {
		state = n.State()
	}
	f.hashing.Lock()
	defer f.hashing.Unlock()
	hash := state.Hash()
	return &adminapi.StateHash{
		Node: string(n.Self()), Index: int64(state.Index()), Hash: hex.EncodeToString(hash[:]), Version: n.Version(), Verdict: adminapi.StateUnknown,
	}, nil
}

// StateHashes implements adminapi.StateHandler.
func (f *Face) StateHashes(ctx context.Context) (*adminapi.StateHashes, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	var names []vtop.NodeName
	for node := range n.State().Nodes() {
		if node.State != fsm.NodeGone {
			names = append(names, node.Name)
		}
	}
	return compareStates(ctx, names, func(ctx context.Context, name vtop.NodeName, index uint64) (*adminapi.StateHash, error) {
		return f.stateOf(ctx, n, name, index)
	}), nil
}

func (f *Face) stateOf(ctx context.Context, n *cluster.Node, name vtop.NodeName, index uint64) (*adminapi.StateHash, error) {
	if name == n.Self() {
		return f.LocalStateHash(ctx, index, stateWait)
	}
	node, ok := n.State().Node(name)
	if !ok || node.Addresses.Admin == "" {
		return nil, errors.New("no admin address is known")
	}
	hash, err := f.clientOf(node.Addresses.Admin).LocalStateHash(ctx, index, stateWait)
	if err == nil && hash.Node != string(name) {
		return nil, fmt.Errorf("the admin address %s is answered by node %q", node.Addresses.Admin, hash.Node)
	}
	return hash, err
}

type stateAsker func(ctx context.Context, name vtop.NodeName, index uint64) (*adminapi.StateHash, error)

// compareStates asks until all that answer are at one index, or it has asked often enough.
func compareStates(ctx context.Context, names []vtop.NodeName, ask stateAsker) *adminapi.StateHashes {
	ctx, cancel := context.WithTimeout(ctx, stateLimit)
	defer cancel()
	answers := make([]adminapi.StateHash, len(names))
	for i, name := range slices.Sorted(slices.Values(names)) {
		answers[i].Node = string(name)
	}
	askStates(ctx, answers, 0, ask)
	ahead := int64(stateAhead)
	for round := 1; round < stateRounds && ctx.Err() == nil && !atOneIndex(answers); round++ {
		var newest int64
		for _, a := range answers {
			newest = max(newest, a.Index)
		}
		askStates(ctx, answers, uint64(newest+ahead), ask)
		ahead *= stateGrowth
	}
	return judgeStates(answers)
}

// askStates asks all nodes at the same time, other than those that did not answer before. Who does not answer has index
// unknown, and why.
func askStates(ctx context.Context, answers []adminapi.StateHash, index uint64, ask stateAsker) {
	ctx, cancel := context.WithTimeout(ctx, stateWait+stateAsk)
	defer cancel()
	var wg sync.WaitGroup
	for i := range answers {
		if answers[i].Index == adminapi.Unknown {
			continue
		}
		wg.Go(func() {
			name := answers[i].Node
			hash, err := ask(ctx, vtop.NodeName(name), index)
			if err != nil {
				answers[i] = adminapi.StateHash{Node: name, Index: adminapi.Unknown, Reason: err.Error()}
				return
			}
			answers[i] = *hash
		})
	}
	wg.Wait()
}

func atOneIndex(answers []adminapi.StateHash) bool {
	at := int64(adminapi.Unknown)
	for _, a := range answers {
		switch {
		case a.Index == adminapi.Unknown || a.Index == at:
		case at == adminapi.Unknown:
			at = a.Index
		default:
			return false
		}
	}
	return true
}

// judgeStates compares those at the index that most are at with the state that most of them have. Nodes of two versions may
// write one state in two ways, so that between them a difference says nothing.
func judgeStates(answers []adminapi.StateHash) *adminapi.StateHashes {
	out := &adminapi.StateHashes{Index: adminapi.Unknown, Verdict: adminapi.StateSame, Nodes: answers}
	if at := most(answers, func(a adminapi.StateHash) any { return a.Index }); at != nil {
		out.Index = at.Index
	}
	common := most(slices.DeleteFunc(slices.Clone(answers), func(a adminapi.StateHash) bool { return a.Index != out.Index }),
		func(a adminapi.StateHash) any { return a.Hash })
	for i := range answers {
		a := &answers[i]
		a.Verdict = adminapi.StateUnknown
		switch {
		case a.Index == adminapi.Unknown: // it says why itself
		case a.Index != out.Index:
			a.Reason = fmt.Sprintf("it is at index %d, not at %d: is it catching up?", a.Index, out.Index)
		case a.Hash == common.Hash:
			a.Verdict = adminapi.StateSame
		case a.Version != common.Version:
			a.Reason = fmt.Sprintf("it runs version %s and %s runs %s: they may write one state in two ways", a.Version, common.Node, common.Version)
		default:
			a.Verdict, a.Reason = adminapi.StateDiffers, fmt.Sprintf("it has another state than %s at this index", common.Node)
		}
		if a.Verdict == adminapi.StateDiffers || a.Verdict == adminapi.StateUnknown && out.Verdict == adminapi.StateSame {
			out.Verdict = a.Verdict
		}
	}
	return out
}

// most is the first of those answers that are alike and more than others; nil if nobody answered.
func most(answers []adminapi.StateHash, of func(adminapi.StateHash) any) (first *adminapi.StateHash) {
	count, firsts, best := map[any]int{}, map[any]*adminapi.StateHash{}, 0
	for i := range answers {
		if answers[i].Index == adminapi.Unknown {
			continue
		}
		k := of(answers[i])
		if firsts[k] == nil {
			firsts[k] = &answers[i]
		}
		if count[k]++; count[k] > best {
			first, best = firsts[k], count[k]
		}
	}
	return first
}
