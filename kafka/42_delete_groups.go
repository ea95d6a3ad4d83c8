package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// DeleteGroups: v0-2
//
//   - Groups of both protocols, each by itself, with their offsets. NON_EMPTY_GROUP while there are members, GROUP_ID_NOT_FOUND for
//     one that is not there. The answer comes when it is applied.

func runDeleteGroups(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DeleteGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, id := range req.Groups {
		rg := kmsg.NewDeleteGroupsResponseGroup()
		rg.Group = id
		groups, err := c.node.Groups()
		if err == nil {
			err = groups.Delete(c, id)
		}
		rg.ErrorCode = c.groupCode(err)
		resp.Groups = append(resp.Groups, rg)
	}
	return resp, nil
}
