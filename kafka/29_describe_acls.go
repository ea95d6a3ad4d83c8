package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeAcls: v1-3
//
//   - vtop authorises nobody: SECURITY_DISABLED, as a Kafka without an authorizer says. Tools print it and go on.

// errNoACLs refuses whatever has to do with ACLs.
var errNoACLs = refuse(kerr.SecurityDisabled, "there are no ACLs: every client that reaches the port may use it; see --kafka-client-auth for who may")

func runDescribeACLs(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	resp := kreq.ResponseKind().(*kmsg.DescribeACLsResponse)
	resp.ErrorCode, resp.ErrorMessage = c.adminAnswer(errNoACLs)
	return resp, nil
}
