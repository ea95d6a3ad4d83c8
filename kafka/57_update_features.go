package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// UpdateFeatures: v0-2
//
//   - The features of ApiVersions have the level that the cluster runs, and no other can be asked for here: what is at that
//     level already is confirmed, anything else is INVALID_UPDATE_VERSION.
//   - v0 and v1 answer for each feature, v2 with the first refusal for all.

func runUpdateFeatures(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.UpdateFeaturesRequest)
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	if err := c.node.Ready(); err != nil {
		resp.ErrorCode, resp.ErrorMessage = c.adminAnswer(err)
		return resp, nil
	}
	for i := range req.FeatureUpdates {
		u := &req.FeatureUpdates[i]
		r := kmsg.NewUpdateFeaturesResponseResult()
		r.Feature = u.Feature
		if err := c.updateFeature(u); err != nil {
			r.ErrorCode, r.ErrorMessage = c.adminAnswer(err)
			if req.Version >= 2 {
				resp.ErrorCode, resp.ErrorMessage = r.ErrorCode, r.ErrorMessage
				break
			}
		}
		resp.Results = append(resp.Results, r)
	}
	return resp, nil
}

func (c *call) updateFeature(u *kmsg.UpdateFeaturesRequestFeatureUpdate) error {
	for _, f := range supportedFeatures(c.node.State()) {
		switch {
		case f.name != u.Feature:
		case f.level == u.MaxVersionLevel:
			return nil
		default:
			return refuse(kerr.InvalidUpdateVersion, fmt.Sprintf("%s is at %d and goes with the version of vtop: it can't be set to %d here", f.name, f.level, u.MaxVersionLevel))
		}
	}
	return refuse(kerr.InvalidUpdateVersion, fmt.Sprintf("feature %.60q is not one of this cluster", u.Feature))
}
