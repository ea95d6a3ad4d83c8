package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// DeleteAcls: v1-3
//
//   - Each filter is refused with SECURITY_DISABLED: see DescribeAcls.

func runDeleteACLs(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DeleteACLsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
	for range req.Filters {
		r := kmsg.NewDeleteACLsResponseResult()
		r.ErrorCode, r.ErrorMessage = c.adminAnswer(errNoACLs)
		resp.Results = append(resp.Results, r)
	}
	return resp, nil
}
