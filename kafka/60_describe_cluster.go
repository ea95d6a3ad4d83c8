package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// DescribeCluster: v0
//
//   - The cluster id, the living nodes, and the controller as in Metadata.

func runDescribeCluster(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	resp := kreq.ResponseKind().(*kmsg.DescribeClusterResponse)
	if err := c.node.Ready(); err != nil {
		resp.ErrorCode, resp.ErrorMessage = c.adminAnswer(err)
		return resp, nil
	}
	v := &view{c.node.State(), c.node}
	resp.ClusterID, resp.ControllerID = v.state.Cluster().ID.String(), v.controller()
	for _, b := range v.brokers() {
		rb := kmsg.NewDescribeClusterResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = b.id, b.host, b.port, b.rack
		resp.Brokers = append(resp.Brokers, rb)
	}
	return resp, nil
}
