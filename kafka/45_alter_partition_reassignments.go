package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// AlterPartitionReassignments: v0-1
//
//   - The nodes that a range is wanted on, in the order of preference. What is missing is brought by repair jobs
//     (vtopctl repair list shows them), each in the place of a voter that goes; see reassign.go. More or fewer replicas
//     than there are is allowed, unless v1 says not to: INVALID_REPLICATION_FACTOR.
//   - A new target replaces an older one: jobs that lead elsewhere are cancelled, what is on its way to a node that is still
//     wanted goes on.
//   - Null cancels what is on its way; NO_REASSIGNMENT_IN_PROGRESS if nothing is. Voters that came already stay.
//   - The answer comes when the jobs are in the metadata. Metadata and ListPartitionReassignments tell how far they are.
//   - What the metadata does not take is INVALID_REPLICA_ASSIGNMENT with the reason, and leaves nothing behind.

func runAlterPartitionReassignments(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.AlterPartitionAssignmentsRequest)
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	if err := c.node.Ready(); err != nil {
		resp.ErrorCode, resp.ErrorMessage = c.adminAnswer(err)
		return resp, nil
	}
	ctx, cancel := c.within(req.TimeoutMillis)
	defer cancel()
	fixed := req.Version >= 1 && !req.AllowReplicationFactorChange
	b := &reassignBatch{call: c, state: c.node.State()}
	seen := map[vtop.Range]bool{}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			b.add(t.Topic, &t.Partitions[j], fixed, seen)
		}
	}
	b.carryOut(ctx)
	at := 0
	for i := range req.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = req.Topics[i].Topic
		for j := range req.Topics[i].Partitions {
			rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			rp.Partition = req.Topics[i].Partitions[j].Partition
			if err := b.errs[at]; err != nil {
				rp.ErrorCode, rp.ErrorMessage = c.adminAnswer(err)
			}
			at++
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// reassignBatch carries out the reassignments of one request together: three entries of the metadata at most for all.
type reassignBatch struct {
	call  *call
	state *fsm.State
	plans []reassignment
	errs  []error // one for each plan
}

// add plans one range.
func (b *reassignBatch) add(topic string, p *kmsg.AlterPartitionAssignmentsRequestTopicPartition, fixed bool, seen map[vtop.Range]bool) {
	plan, err := b.plan(topic, p, fixed)
	if err == nil && seen[plan.r] {
		err = refuse(kerr.InvalidRequest, "the request names this partition more than once")
	}
	seen[plan.r] = true
	b.plans, b.errs = append(b.plans, plan), append(b.errs, err)
}

func (b *reassignBatch) plan(topic string, p *kmsg.AlterPartitionAssignmentsRequestTopicPartition, fixed bool) (plan reassignment, err error) {
	rg, err := rangeNamed(b.state, topic, p.Partition)
	if err != nil {
		return plan, err
	}
	if p.Replicas == nil {
		plan, ok := planCancel(b.state, rg)
		if !ok {
			return plan, refuse(kerr.NoReassignmentInProgress, "nothing is being moved")
		}
		return plan, nil
	}
	target, err := targetNodes(b.state, p.Replicas)
	if err != nil {
		return plan, err
	}
	if want := len(rg.Preferred); fixed && len(target) != want {
		return plan, refuse(kerr.InvalidReplicationFactor, fmt.Sprintf("%d replicas where there are %d: allow changes of the replication factor", len(target), want))
	}
	return planReassignment(b.state, rg, target, fmt.Sprintf("reassigned by a client of %s", b.call.node.Self())), nil
}

// carryOut proposes what was planned: cancellations, jobs, orders of preference.
func (b *reassignBatch) carryOut(ctx context.Context) {
	var stop []fsm.RepairID
	for i := range b.plans {
		if b.errs[i] == nil {
			stop = append(stop, b.plans[i].cancel...)
		}
	}
	if len(stop) > 0 {
		if _, err := b.call.node.CancelRepairs(ctx, stop, "another assignment was asked for"); err != nil {
			b.fail(err)
			return
		}
	}
	b.submit(ctx)
	b.prefer(ctx)
}

// fail gives every plan that has not failed yet the same error.
func (b *reassignBatch) fail(err error) {
	for i := range b.errs {
		if b.errs[i] == nil {
			b.errs[i] = err
		}
	}
}

// submit asks for the jobs of all ranges. A range of which one is refused keeps none.
func (b *reassignBatch) submit(ctx context.Context) {
	var ask []fsm.RepairRequest
	var of []int // the plan of each
	for i := range b.plans {
		if b.errs[i] == nil {
			for _, q := range b.plans[i].requests {
				ask, of = append(ask, q), append(of, i)
			}
		}
	}
	if len(ask) == 0 {
		return
	}
	items, err := b.call.node.SubmitRepairs(ctx, ask)
	made := map[int][]fsm.RepairID{}
	for k, item := range items {
		if refused := item.Err(); refused != nil {
			b.errs[of[k]] = reassignError(refused)
		} else if !item.Existing {
			made[of[k]] = append(made[of[k]], item.Repair)
		}
	}
	for k := len(items); err != nil && k < len(ask); k++ {
		b.errs[of[k]] = err
	}
	var undo []fsm.RepairID
	for i, ids := range made {
		if b.errs[i] != nil {
			undo = append(undo, ids...)
		}
	}
	if len(undo) > 0 {
		if _, err := b.call.node.CancelRepairs(ctx, undo, "the rest of its assignment was refused"); err != nil {
			b.call.server.log.Warn("jobs of a refused reassignment were not cancelled", "jobs", len(undo), "error", err)
		}
	}
}

// prefer sets the orders of preference of what was taken.
func (b *reassignBatch) prefer(ctx context.Context) {
	var ask []fsm.Preference
	var of []int
	for i := range b.plans {
		if p := &b.plans[i]; b.errs[i] == nil && p.preferred != nil {
			ask, of = append(ask, fsm.Preference{Range: p.r, Nodes: p.preferred}), append(of, i)
		}
	}
	if len(ask) == 0 {
		return
	}
	items, err := b.call.node.SetPreferred(ctx, ask)
	for k, i := range of {
		if err != nil {
			b.errs[i] = err
		} else if refused := items[k].Err(); refused != nil {
			b.errs[i] = reassignError(refused)
		}
	}
}

// reassignError gives what the metadata does not take the code of an assignment.
func reassignError(err error) error {
	var r *fsm.Refusal
	if !errors.As(err, &r) {
		return err
	}
	switch r.Code {
	case fsm.CodeUnknownRange, fsm.CodeStaleConfig, fsm.CodeLimit, fsm.CodeLevel:
		return err
	}
	return refuse(kerr.InvalidReplicaAssignment, err.Error())
}
