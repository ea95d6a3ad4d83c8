package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeUserScramCredentials: v0
//
//   - There are no users: the list of all is empty, and one that is asked for by name is RESOURCE_NOT_FOUND.

func runDescribeUserScramCredentials(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DescribeUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	resp.Results = []kmsg.DescribeUserSCRAMCredentialsResponseResult{}
	for _, u := range req.Users {
		r := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		r.User = u.Name
		r.ErrorCode, r.ErrorMessage = c.adminAnswer(refuse(kerr.ResourceNotFound, fmt.Sprintf("no user %.60q: vtop has none", u.Name)))
		resp.Results = append(resp.Results, r)
	}
	return resp, nil
}
