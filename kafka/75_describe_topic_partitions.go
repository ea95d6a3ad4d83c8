package kafka

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/fsm"
)

// DescribeTopicPartitions: v0
//
//   - What Metadata tells of topics, in pages: topics by name, at most ResponsePartitionLimit partitions, and a cursor where
//     the next page begins. A cursor holds a place by name: what is created or deleted between two pages is in or not.
//   - No topics named: all of them. Nothing is created, and nothing waited for.
//   - A cursor that is before the first partition, or at a topic that the request does not name, is refused: INVALID_REQUEST
//     for each topic that is named; where none is, the connection ends, as there is nothing to put the code on.
//   - There are no eligible leader replicas beyond those in sync (KIP-966): the lists are empty.

// maxPage is the most partitions of one answer, as in Kafka.
const maxPage = 2000

func runDescribeTopicPartitions(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	refused := func(code *kerr.Error, why error) (kmsg.Response, error) {
		if len(req.Topics) == 0 {
			return nil, why
		}
		for i := range req.Topics {
			resp.Topics = append(resp.Topics, describedTopic(req.Topics[i].Topic, code.Code))
		}
		return resp, nil
	}
	if len(req.Topics) == 0 {
		if err := c.awaitReady(); err != nil {
			return nil, err
		}
	} else if err := c.node.Ready(); err != nil {
		return refused(kerr.LeaderNotAvailable, err)
	}
	if err := checkCursor(req); err != nil {
		return refused(kerr.InvalidRequest, err)
	}
	page := topicPage{call: c, view: &view{c.node.State(), c.node}, resp: resp, left: min(max(req.ResponsePartitionLimit, 1), maxPage)}
	if req.Cursor != nil {
		page.from, page.index = req.Cursor.Topic, req.Cursor.Partition
	}
	if len(req.Topics) == 0 {
		for t := range page.view.state.Topics() { // by name
			if !page.add(t.Name, t) {
				break
			}
		}
		return resp, nil
	}
	for _, name := range namesInOrder(req) {
		t, _ := page.view.state.TopicByName(name)
		if !page.add(name, t) {
			break
		}
	}
	return resp, nil
}

func namesInOrder(req *kmsg.DescribeTopicPartitionsRequest) []string {
	names := make([]string, 0, len(req.Topics))
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkCursor refuses a cursor that no answer of this request can have given.
func checkCursor(req *kmsg.DescribeTopicPartitionsRequest) error {
	at := req.Cursor
	if at == nil {
		return nil
	}
	if at.Partition < 0 {
		return fmt.Errorf("%w: cursor at partition %d of topic %q: want 0 or more", errMalformed, at.Partition, at.Topic)
	}
	named := func(t kmsg.DescribeTopicPartitionsRequestTopic) bool { return t.Topic == at.Topic }
	if len(req.Topics) > 0 && !slices.ContainsFunc(req.Topics, named) {
		return fmt.Errorf("%w: cursor at topic %q, which is not asked for", errMalformed, at.Topic)
	}
	return nil
}

// topicPage fills one answer.
type topicPage struct {
	call  *call
	view  *view
	resp  *kmsg.DescribeTopicPartitionsResponse
	left  int32  // partitions that still fit
	from  string // where the page begins
	index int32
}

// add puts a topic onto the page, t being nil if there is none of the name; false if the page is full.
func (p *topicPage) add(name string, t *fsm.Topic) bool {
	if name < p.from {
		return true
	}
	first := int32(0)
	if name == p.from {
		first = p.index
	}
	if p.left == 0 {
		p.next(name, first)
		return false
	}
	if t == nil {
		code := kerr.UnknownTopicOrPartition
		if checkTopicName(name) != nil {
			code = kerr.InvalidTopicException
		}
		p.resp.Topics = append(p.resp.Topics, describedTopic(name, code.Code))
		return true
	}
	rt := describedTopic(name, 0)
	rt.TopicID = t.ID
	first = min(first, t.Ranges)
	last := first + min(p.left, t.Ranges-first)
	for r := range p.view.state.RangesOfTopic(t.ID) { // by index
		if r.ID.Index >= last {
			break
		}
		if r.ID.Index >= first {
			rt.Partitions = append(rt.Partitions, p.partition(r))
			p.left--
		}
	}
	p.resp.Topics = append(p.resp.Topics, rt)
	if last < t.Ranges {
		p.next(name, last)
		return false
	}
	return true
}

func (p *topicPage) next(name string, index int32) {
	at := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	at.Topic, at.Partition = name, index
	p.resp.NextCursor = &at
}

func (p *topicPage) partition(r *fsm.Range) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	m, led := p.view.partition(r)
	rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	rp.Partition, rp.LeaderID, rp.LeaderEpoch = m.Partition, m.Leader, m.LeaderEpoch
	rp.Replicas, rp.ISR, rp.OfflineReplicas = m.Replicas, m.ISR, m.OfflineReplicas
	rp.EligibleLeaderReplicas, rp.LastKnownELR = []int32{}, []int32{} // not null, which some clients cannot read
	if !led {
		rp.ErrorCode = kerr.LeaderNotAvailable.Code
	}
	return rp
}

func describedTopic(name string, code int16) kmsg.DescribeTopicPartitionsResponseTopic {
	rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
	rt.Topic, rt.ErrorCode, rt.AuthorizedOperations = &name, code, topicOperations
	return rt
}
