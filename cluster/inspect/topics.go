package inspect

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
	"github.com/vtop-log/vtop/cluster/placement"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/topicconfig"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// Topics implements adminapi.Handler.
func (f *Face) Topics(context.Context) ([]adminapi.Topic, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	state := n.State()
	out := []adminapi.Topic{}
	for t := range state.Topics() {
		out = append(out, describeTopic(state, t))
	}
	return out, nil
}

func describeTopic(state *fsm.State, t *fsm.Topic) adminapi.Topic {
	out := adminapi.Topic{Name: t.Name, ID: t.ID.String(), Ranges: int(t.Ranges), Config: map[string]string{}}
	maps.Copy(out.Config, t.Config)
	if r, ok := state.Range(vtop.Range{Topic: t.ID}); ok {
		out.Replicas = len(r.Voters())
	}
	return out
}

// Topic implements adminapi.Handler.
func (f *Face) Topic(ctx context.Context, name string) (*adminapi.TopicDetail, error) {
	p, err := f.look(ctx, name)
	if err != nil {
		return nil, err
	}
	t, err := topicNamed(p.state, name)
	if err != nil {
		return nil, err
	}
	return &adminapi.TopicDetail{Topic: describeTopic(p.state, t), Leases: p.leasesOf(t)}, nil
}

// CreateTopic implements adminapi.Handler. It returns once the metadata has the topic; its ranges get their holders
// right after.
func (f *Face) CreateTopic(ctx context.Context, req adminapi.CreateTopic) (*adminapi.TopicDetail, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	if req.Ranges < 0 || req.Ranges > fsm.MaxRangesPerTopic || req.Replicas < 0 || req.Replicas > fsm.MaxReplicas {
		return nil, adminapi.Errorf(adminapi.CodeInvalid, "%d ranges with %d replicas: want at most %d and %d", req.Ranges, req.Replicas, fsm.MaxRangesPerTopic, fsm.MaxReplicas)
	}
	if err := topicconfig.Validate(req.Config, n.ReplicasFor(req.Replicas)); err != nil {
		return nil, adminapi.Errorf(adminapi.CodeInvalid, "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	_, err = n.CreateTopic(ctx, req.Name, int32(req.Ranges), int16(req.Replicas), req.Config)
	var few *placement.TooFewNodesError
	if errors.As(err, &few) {
		return nil, adminapi.Errorf(adminapi.CodeUnavailable, "%v", err)
	}
	if err != nil {
		return nil, refusal(err)
	}
	return f.Topic(ctx, req.Name)
}

// DeleteTopic implements adminapi.Handler.
func (f *Face) DeleteTopic(ctx context.Context, name string) error {
	n, err := f.ready()
	if err != nil {
		return err
	}
	t, err := topicNamed(n.State(), name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return refusal(n.DeleteTopic(ctx, t.ID))
}

// transferRefusal says why a lease did not move, in the same words whether this node is the Raft leader or asked it.
func transferRefusal(err error, topic string, index int32) error {
	var refused *controller.TransferError
	var peer *transport.PeerError
	var text string
	switch {
	case errors.As(err, &refused):
		text = refused.Error()
	case errors.As(err, &peer) && errors.Is(peer, transport.ErrInvalid):
		text = strings.TrimPrefix(peer.Message, transport.ErrInvalid.Error()+": ")
	default:
		return refusal(err)
	}
	return adminapi.Errorf(adminapi.CodeConflict, "%s", text).WithHint("vtopctl lease show %s/%d tells which nodes have a voter that is alive and whole", topic, index)
}
