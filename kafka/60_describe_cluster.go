package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/fsm"
)

// DescribeCluster: v0-2
//
//   - The cluster id, the living nodes, and the controller as in Metadata; v2 also those that are down, as fenced, if asked.
//   - v1 can ask for controllers instead of brokers: MISMATCHED_ENDPOINT_TYPE, since this port is one for brokers.

// The kinds of endpoints that a client can ask for.
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

func runDescribeCluster(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	if err := c.describable(req); err != nil {
		resp.ErrorCode, resp.ErrorMessage = c.adminAnswer(err)
		return resp, nil
	}
	v := &view{c.node.State(), c.node}
	resp.ClusterID, resp.ControllerID = v.state.Cluster().ID.String(), v.controller()
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	for n := range v.state.Nodes() {
		b, ok := asBroker(n)
		fenced := !v.alive(n)
		if !ok || n.State == fsm.NodeGone || fenced && !(req.Version >= 2 && req.IncludeFencedBrokers) {
			continue
		}
		rb := kmsg.NewDescribeClusterResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack, rb.IsFenced = b.id, b.host, b.port, b.rack, fenced
		resp.Brokers = append(resp.Brokers, rb)
	}
	return resp, nil
}

// describable refuses what this port cannot tell.
func (c *call) describable(req *kmsg.DescribeClusterRequest) error {
	if req.Version >= 1 && req.EndpointType == endpointControllers {
		return refuse(kerr.MismatchedEndpointType, "this port is one for brokers: ask it for those; every node of vtop takes what Kafka's controllers do")
	}
	if req.Version >= 1 && req.EndpointType != endpointBrokers {
		return refuse(kerr.UnsupportedEndpointType, fmt.Sprintf("endpoint type %d: want %d, brokers", req.EndpointType, endpointBrokers))
	}
	return c.node.Ready()
}
