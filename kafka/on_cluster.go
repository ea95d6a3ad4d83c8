package kafka

import (
	"context"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/cluster"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
)

// OnCluster makes the Node of the client face out of a node of a cluster.
func OnCluster(n *cluster.Node) Node { return onCluster{n} }

// onCluster gives the node's verbs the client face's types.
type onCluster struct{ n *cluster.Node }

var _ Node = onCluster{}

// State implements Node.
func (o onCluster) State() *fsm.State { return o.n.State() }

// Self implements Node.
func (o onCluster) Self() vtop.NodeName { return o.n.Self() }

// Ready implements Node.
func (o onCluster) Ready() error { return o.n.Ready() }

// Alive implements Node.
func (o onCluster) Alive(name vtop.NodeName) bool { return o.n.Alive(name) }

// Controller implements Node.
func (o onCluster) Controller() (vtop.NodeName, bool) { return o.n.RaftLeader() }

// Groups implements Node.
func (o onCluster) Groups() (*group.Coordinator, error) { return o.n.Groups() }

// Append implements Data.
func (o onCluster) Append(ctx context.Context, r vtop.Range, clientEpoch vtop.Epoch, b batch.Batch, acks int16, done func(vtop.AppendResult)) {
	e, err := o.n.Engine()
	if err != nil {
		done(vtop.AppendResult{Err: err})
		return
	}
	e.Append(ctx, r, clientEpoch, b, acks, done)
}

// Fetch implements Data.
func (o onCluster) Fetch(r vtop.Range, spec vtop.FetchSpec, dst []byte) (vtop.FetchResult, error) {
	e, err := o.n.Engine()
	if err != nil {
		return vtop.FetchResult{Dst: dst, HighWatermark: -1, LogStart: -1}, err
	}
	return e.Fetch(r, spec, dst)
}

// Watch implements Data.
func (o onCluster) Watch(ranges []vtop.Range, wake chan<- struct{}) (stop func()) {
	e, err := o.n.Engine()
	if err != nil {
		return func() {}
	}
	return e.Watch(ranges, wake)
}

// WaitLeading implements Data.
func (o onCluster) WaitLeading(ctx context.Context, r vtop.Range) error {
	e, err := o.n.Engine()
	if err != nil {
		return err
	}
	return e.WaitLeading(ctx, r)
}

// EndOffset implements Data.
func (o onCluster) EndOffset(r vtop.Range, clientEpoch vtop.Epoch) (vtop.EpochOffset, error) {
	e, err := o.n.Engine()
	if err != nil {
		return vtop.EpochOffset{}, err
	}
	return e.EndOffset(r, clientEpoch)
}

// StartOffset implements Data.
func (o onCluster) StartOffset(r vtop.Range, clientEpoch vtop.Epoch) (vtop.EpochOffset, error) {
	e, err := o.n.Engine()
	if err != nil {
		return vtop.EpochOffset{}, err
	}
	return e.StartOffset(r, clientEpoch)
}

// OffsetForTime implements Data.
func (o onCluster) OffsetForTime(r vtop.Range, clientEpoch vtop.Epoch, ts int64) (vtop.TimeOffset, bool, error) {
	e, err := o.n.Engine()
	if err != nil {
		return vtop.TimeOffset{}, false, err
	}
	return e.OffsetForTime(r, clientEpoch, ts)
}

// EpochEnd implements Data.
func (o onCluster) EpochEnd(r vtop.Range, clientEpoch, epoch vtop.Epoch) (vtop.EpochOffset, error) {
	e, err := o.n.Engine()
	if err != nil {
		return vtop.EpochOffset{}, err
	}
	return e.EpochEnd(r, clientEpoch, epoch)
}

// CreateTopic implements Admin.
func (o onCluster) CreateTopic(ctx context.Context, spec TopicSpec) (vtop.TopicID, error) {
	return o.n.CreateTopic(ctx, spec.Name, spec.Ranges, spec.Replicas, spec.Config)
}

// DeleteTopic implements Admin.
func (o onCluster) DeleteTopic(ctx context.Context, id vtop.TopicID) error {
	return o.n.DeleteTopic(ctx, id)
}

// CreateRanges implements Admin.
func (o onCluster) CreateRanges(ctx context.Context, id vtop.TopicID, from, to int32) error {
	return o.n.CreateRanges(ctx, id, from, to)
}

// AlterTopicConfig implements Admin.
func (o onCluster) AlterTopicConfig(ctx context.Context, id vtop.TopicID, set map[string]string, unset []string) error {
	return o.n.AlterTopicConfig(ctx, id, set, unset)
}

// DeleteRecords implements Admin.
func (o onCluster) DeleteRecords(ctx context.Context, r vtop.Range, before vtop.Offset) (vtop.Offset, error) {
	e, err := o.n.Engine()
	if err != nil {
		return -1, err
	}
	return e.DeleteRecords(ctx, r, before)
}

// ProducerID implements Admin.
func (o onCluster) ProducerID(ctx context.Context) (int64, error) { return o.n.ProducerID(ctx) }
