package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// Metadata: v0-13
//
//   - Brokers are the nodes that are alive; the leader of a range is the living holder of its lease, even while it is
//     promoted; in-sync replicas are the living voters. Anything finer only the leader knows.
//   - A range without a living leader has LEADER_NOT_AVAILABLE and the last epoch, which never goes back.
//   - A topic that is asked for by name and not there is created, if client (v4) and Config allow it.
//   - For named topics the answer waits up to Config.LeaderWait for the leaders of a new topic, and of ranges that lost
//     theirs within the last seconds: one good answer instead of several bad ones with the client's back-off between.
//   - Topics are named by name or, from v12 on, by id: what is asked by id is never created. Before v12 an id, or a topic
//     without a name, makes the whole request INVALID_REQUEST. v13's code for the whole answer is always 0.
//   - Without security, all that can be done to the cluster or a topic is allowed, where a client asks what is.
//   - A node that has not caught up with the metadata knows neither what is there nor what is not: it answers named topics
//     with LEADER_NOT_AVAILABLE. A client that asks for all, or for none, waits up to readyWait for it to catch up, and then its
//     connection ends; some take a connection that ends so early for settings of theirs that are wrong.

// errNotCaughtUp ends a connection: the client turns to another node.
var errNotCaughtUp = errors.New("metadata asked of a node that has not caught up")

func runMetadata(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	all := req.Topics == nil || req.Version == 0 && len(req.Topics) == 0
	switch err := c.node.Ready(); {
	case err == nil:
	case all || len(req.Topics) == 0:
		if err := c.awaitReady(); err != nil {
			return nil, err
		}
	default:
		c.metadataRefused(req, resp, kerr.LeaderNotAvailable)
		return resp, nil
	}
	if req.Version < 12 && namedOddly(req) {
		c.metadataRefused(req, resp, kerr.InvalidRequest)
		return resp, nil
	}
	v := &view{c.node.State(), c.node}
	if !all {
		v = c.prepareTopics(v, req)
	}
	c.metadataCluster(v, resp)
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	add := func(rt kmsg.MetadataResponseTopic) {
		if req.IncludeTopicAuthorizedOperations && rt.ErrorCode == 0 {
			rt.AuthorizedOperations = topicOperations
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if all {
		for t := range v.state.Topics() {
			add(c.metadataTopic(v, t))
		}
		return resp, nil
	}
	seen := make(map[topicRef]bool, len(req.Topics))
	for i := range req.Topics { // each once: a small request must not have a huge answer
		ref := topicAsked(&req.Topics[i])
		t, known := ref.in(v.state)
		if known {
			ref = topicRef{id: t.ID, byID: true}
		}
		switch {
		case seen[ref]:
		case known:
			add(c.metadataTopic(v, t))
		default:
			add(c.metadataUnknown(ref))
		}
		seen[ref] = true
	}
	return resp, nil
}

// What a client may do, as bits numbered by Kafka's operations: there are no access rules.
const (
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11 // read, write, create, delete, alter, describe, and the two for settings
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12       // create, alter, describe, act as a broker, settings, write idempotently
)

// topicAsked is a topic as a Metadata request names it: by id if it gives one.
func topicAsked(t *kmsg.MetadataRequestTopic) topicRef {
	if id := vtop.TopicID(t.TopicID); id != (vtop.TopicID{}) {
		return topicRef{id: id, byID: true}
	}
	return topicRef{name: topicName(t)}
}

// namedOddly says whether a topic has no name, or an id.
func namedOddly(req *kmsg.MetadataRequest) bool {
	return slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.Topic == nil || t.TopicID != [16]byte{} })
}

func topicName(t *kmsg.MetadataRequestTopic) string {
	if t.Topic == nil {
		return ""
	}
	return *t.Topic
}

func (c *call) metadataCluster(v *view, resp *kmsg.MetadataResponse) {
	for _, b := range v.brokers() {
		rb := kmsg.NewMetadataResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = b.id, b.host, b.port, b.rack
		resp.Brokers = append(resp.Brokers, rb)
	}
	id := v.state.Cluster().ID.String()
	resp.ClusterID, resp.ControllerID = &id, v.controller()
}

// metadataRefused answers every topic of the request with the same code.
func (c *call) metadataRefused(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse, code *kerr.Error) {
	c.metadataCluster(&view{c.node.State(), c.node}, resp)
	for i := range req.Topics {
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.TopicID, rt.ErrorCode = kmsg.StringPtr(topicName(&req.Topics[i])), req.Topics[i].TopicID, code.Code
		resp.Topics = append(resp.Topics, rt)
	}
}

// metadataUnknown answers for a topic that is not there.
func (c *call) metadataUnknown(ref topicRef) kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	if ref.byID {
		rt.TopicID, rt.ErrorCode = ref.id, kerr.UnknownTopicID.Code
		return rt
	}
	rt.Topic, rt.ErrorCode = &ref.name, kerr.UnknownTopicOrPartition.Code
	if checkTopicName(ref.name) != nil {
		rt.ErrorCode = kerr.InvalidTopicException.Code
	} else if err := c.frame.createErr[ref.name]; err != nil {
		rt.ErrorCode = c.server.adminCode(err)
		if errors.Is(err, vtop.ErrTimeout) || errors.Is(err, vtop.ErrNotReady) || errors.Is(err, context.DeadlineExceeded) {
			rt.ErrorCode = kerr.LeaderNotAvailable.Code // it may be there soon
		}
	}
	return rt
}

func (c *call) metadataTopic(v *view, t *fsm.Topic) kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	name := t.Name
	rt.Topic, rt.TopicID = &name, t.ID
	rt.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, t.Ranges)
	for r := range v.state.RangesOfTopic(t.ID) {
		p, led := v.partition(r)
		if led {
			c.server.leaders.led(r.ID)
		} else {
			p.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		rt.Partitions = append(rt.Partitions, p)
	}
	return rt
}

// prepareTopics creates the missing topics of a request, if that is allowed, waits shortly for leaders, and returns the
// view to answer from.
func (c *call) prepareTopics(v *view, req *kmsg.MetadataRequest) *view {
	if c.server.cfg.AutoCreate && (req.Version < 4 || req.AllowAutoTopicCreation) {
		c.createMissing(v, req)
	}
	deadline := c.frame.at.Add(c.server.cfg.LeaderWait)
	var watch watcher
	defer watch.stop()
	for {
		v = &view{c.node.State(), c.node}
		wanted := c.leaderless(v, req)
		if len(wanted) == 0 || !time.Now().Before(deadline) || c.server.isDraining() {
			return v
		}
		if !watch.begin(c.node, wanted) {
			continue
		}
		// Who is alive moves without a wake.
		until := time.Now().Add(alivePause)
		if until.After(deadline) {
			until = deadline
		}
		if watch.wait(c.frame.conn, until, false) != nil {
			return v
		}
	}
}

const alivePause = 25 * time.Millisecond

// readyWait is longer than a node that comes back needs to hear from the Raft leader again, and shorter than clients wait for an answer.
const readyWait = 12 * time.Second

// awaitReady waits for this node to catch up with the metadata, up to readyWait; errNotCaughtUp if it does not.
func (c *call) awaitReady() error {
	deadline := c.frame.at.Add(min(readyWait, c.server.cfg.MaxTimeout))
	for {
		err := c.node.Ready()
		if err == nil {
			return nil
		}
		if !time.Now().Before(deadline) || !c.frame.conn.pause(alivePause) {
			return fmt.Errorf("%w: %w", errNotCaughtUp, err)
		}
	}
}

// leaderless lists the ranges of the request that lack a leader since a short time only.
func (c *call) leaderless(v *view, req *kmsg.MetadataRequest) []vtop.Range {
	var out []vtop.Range
	now := time.Now()
	seen := make(map[vtop.TopicID]bool, len(req.Topics))
	for i := range req.Topics {
		t, ok := topicAsked(&req.Topics[i]).in(v.state)
		if !ok || seen[t.ID] {
			continue
		}
		seen[t.ID] = true
		for r := range v.state.RangesOfTopic(t.ID) {
			if _, led := v.leader(r); !led && c.server.leaders.fresh(r.ID, now) {
				out = append(out, r.ID)
			}
		}
	}
	return out
}

// maxAutoCreate bounds the topics that one Metadata request creates.
const maxAutoCreate = 64

// createMissing creates the topics that the request names and the state lacks. What went wrong is kept for the answer.
func (c *call) createMissing(v *view, req *kmsg.MetadataRequest) {
	ctx, cancel := c.within(0)
	defer cancel()
	created := 0
	for i := range req.Topics {
		ref := topicAsked(&req.Topics[i])
		name := ref.name
		if _, ok := ref.in(v.state); ok || ref.byID || checkTopicName(name) != nil || created == maxAutoCreate {
			continue
		}
		created++
		spec := TopicSpec{Name: name, Ranges: c.server.cfg.DefaultRanges, Replicas: c.server.defaultReplicas(v)}
		err := checkReplicas(v, spec.Replicas)
		if err == nil {
			_, err = c.node.CreateTopic(ctx, spec)
		}
		if err == nil {
			c.server.log.Info("created a topic on first use", "topic", name, "ranges", spec.Ranges, "replicas", spec.Replicas)
			continue
		}
		if errors.Is(err, refusal(fsm.CodeTopicExists)) { // another client was faster
			continue
		}
		c.server.log.Warn("cannot create a topic on first use", "topic", name, "error", err)
		if c.frame.createErr == nil {
			c.frame.createErr = map[string]error{}
		}
		c.frame.createErr[name] = err
	}
}
