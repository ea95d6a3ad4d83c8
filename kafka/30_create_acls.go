package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// CreateAcls: v1-3
//
//   - Each is refused with SECURITY_DISABLED: see DescribeAcls.

func runCreateACLs(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.CreateACLsRequest)
	resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
	for range req.Creations {
		r := kmsg.NewCreateACLsResponseResult()
		r.ErrorCode, r.ErrorMessage = c.adminAnswer(errNoACLs)
		resp.Results = append(resp.Results, r)
	}
	return resp, nil
}
