package drill

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// prepare looks whether the drill can be done at all, and makes its topic.
func (r *runner) prepare(ctx context.Context) error {
	s, err := r.admin.Status(ctx)
	if err != nil {
		return err
	}
	if s.ClusterID == "" || !s.Ready {
		return adminapi.Errorf(adminapi.CodeNotReady, "node %s is not ready: %s", s.Node, dash(s.Reason))
	}
	r.report.Cluster = s.ClusterID
	nodes, err := r.admin.Nodes(ctx)
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(nodes, func(n adminapi.Node) bool { return n.State == "gone" })
	if err := r.allowed(nodes); err != nil {
		return err
	}
	if r.seeds = r.cfg.Bootstrap; len(r.seeds) == 0 {
		for _, n := range nodes {
			if n.KafkaAddr != "" {
				r.seeds = append(r.seeds, n.KafkaAddr)
			}
		}
	}
	return r.prepareTopic(ctx, len(nodes))
}

// allowed refuses a drill that no node was started for.
func (r *runner) allowed(nodes []adminapi.Node) error {
	if !r.fault.strikes {
		return nil
	}
	var not []string
	for _, n := range nodes {
		if !n.AllowsDrills {
			not = append(not, n.Name)
		}
	}
	if len(not) == len(nodes) {
		return adminapi.Errorf(adminapi.CodeNotAllowed, "drill %s needs nodes that were started with --allow-drills, and none was (or none of them answers)", r.cfg.Kind).
			WithHint("start vtopd with --allow-drills (vtopd dev does so), or run a drill that needs no help: leader-transfer or repair")
	}
	if len(not) > 0 {
		r.note("%s: not started with --allow-drills, or no answer: spared", strings.Join(not, ", "))
	}
	return nil
}

func (r *runner) prepareTopic(ctx context.Context, nodes int) error {
	most := min(3, nodes)
	if r.cfg.Kind == "repair" {
		most = min(3, nodes-1)
	}
	want := map[string]int{"leader-transfer": 2, "repair": 2, "wipe-replica": 3}[r.cfg.Kind]
	if r.cfg.Topic == "" {
		if r.cfg.Replicas == 0 {
			r.cfg.Replicas = max(most, 1)
		}
		if r.cfg.Replicas < want || r.cfg.Replicas > nodes || r.cfg.Kind == "repair" && r.cfg.Replicas >= nodes {
			return adminapi.Errorf(adminapi.CodeConflict, "drill %s does not work with %d replicas on %d nodes", r.cfg.Kind, r.cfg.Replicas, nodes).
				WithHint("a range has at most one replica on a node; leader-transfer and repair want 2 replicas or more, wipe-replica 3, repair a node more than there are replicas")
		}
		r.topic = "vtop-drill-" + r.cfg.Kind + "-" + time.Now().UTC().Format("20060102-150405.000")
		t, err := r.admin.CreateTopic(ctx, adminapi.CreateTopic{Name: r.topic, Ranges: r.cfg.Ranges, Replicas: r.cfg.Replicas})
		if err != nil {
			return err
		}
		r.report.OwnTopic = true
		r.tell("topic %s: %d ranges, %d replicas", t.Name, t.Ranges, t.Replicas)
	}
	r.report.Topic = r.topic
	if !r.report.OwnTopic {
		if err := r.topicExists(ctx); err != nil {
			return err
		}
	}
	err := r.await(ctx, r.cfg.Patience, r.whole)
	if err == nil {
		var leases []adminapi.Lease
		if leases, err = r.admin.Leases(ctx, r.topic); err == nil {
			r.report.Ranges, r.report.Replicas = len(leases), len(leases[0].Replicas)
			return nil
		}
	}
	var told *adminapi.Error
	if !errors.As(err, &told) && ctx.Err() == nil {
		err = adminapi.Errorf(adminapi.CodeConflict, "topic %s is not whole, so no drill begins: %v", r.topic, err).WithHint("vtopctl status says what is missing")
	}
	return errors.Join(err, r.leave(ctx, false))
}

// topicExists refuses a topic of the operator's that is not there: waiting does not bring it.
func (r *runner) topicExists(ctx context.Context) error {
	_, err := r.admin.Leases(ctx, r.topic)
	var told *adminapi.Error
	if errors.As(err, &told) && told.Code == adminapi.CodeNotFound {
		return adminapi.Errorf(adminapi.CodeConflict, "%s, so no drill begins", told.Message).WithHint("vtopctl topic list shows the topics")
	}
	return nil
}
