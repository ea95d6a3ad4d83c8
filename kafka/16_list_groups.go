package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
)

// ListGroups: v0-5
//
//   - The groups that this node coordinates: clients ask all nodes. Filters by state (v4) and type (v5) know no case.

func runListGroups(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.ListGroupsRequest)
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	var listed []group.Listed
	groups, err := c.node.Groups()
	if err == nil {
		listed, err = groups.List()
	}
	if errors.Is(err, vtop.ErrNotReady) {
		err = fmt.Errorf("%w: %w", group.ErrLoading, err) // this node is asked, and no other
	}
	resp.ErrorCode = c.groupCode(err)
	for _, g := range listed {
		if !filtered(req.StatesFilter, g.State) || !filtered(req.TypesFilter, g.Kind.String()) {
			continue
		}
		rg := kmsg.NewListGroupsResponseGroup()
		rg.Group, rg.ProtocolType, rg.GroupState, rg.GroupType = g.ID, g.ProtocolType, g.State, g.Kind.String()
		resp.Groups = append(resp.Groups, rg)
	}
	return resp, nil
}

// filtered reports whether a filter, if there is one, names the value.
func filtered(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
}
