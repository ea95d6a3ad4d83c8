package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/fsm"
)

// ApiVersions: v0-4
//
//   - Any version above is answered in v0 with UNSUPPORTED_VERSION and the whole list: clients begin with their newest
//     version and come back with one of ours. The list must hold key 18 itself.
//   - The answer's header never has tags, not even in v3.
//   - v3's software name is not checked: a client with an odd one is still served.
//   - v3 and later tell the features (KIP-584). Kafka's metadata.version says which release the versions served are those of,
//     group.version that the new group protocol is there; transaction.version, share.version and the like are not, since what
//     they stand for is not. vtop.level is the cluster's own. None of them begins at 0, which clients below v4 cannot read.

func runApiVersions(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	resp := kreq.ResponseKind().(*kmsg.ApiVersionsResponse)
	fillApiVersions(resp, c.server.apis)
	if resp.Version >= 3 {
		c.fillFeatures(resp)
	}
	return resp, nil
}

// feature is one feature of the cluster: the levels that its nodes could run, and the one that they do.
type feature struct {
	name            string
	min, max, level int16
}

// kafkaLevel is Kafka's name for its release 4.1 as a metadata.version (4.1-IV1).
const kafkaLevel = 27

// supportedFeatures lists the features of a cluster in the given state.
func supportedFeatures(state *fsm.State) []feature {
	out := []feature{{"metadata.version", kafkaLevel, kafkaLevel, kafkaLevel}, {"group.version", 1, 1, 1}}
	if level := state.Cluster().Level; level > 0 {
		out = append(out, feature{"vtop.level", int16(fsm.LevelFirst), int16(fsm.LevelMax), int16(level)})
	}
	return out
}

func (c *call) fillFeatures(resp *kmsg.ApiVersionsResponse) {
	state := c.node.State()
	resp.FinalizedFeaturesEpoch = int64(state.Index())
	for _, f := range supportedFeatures(state) {
		supported := kmsg.NewApiVersionsResponseSupportedFeature()
		supported.Name, supported.MinVersion, supported.MaxVersion = f.name, f.min, f.max
		resp.SupportedFeatures = append(resp.SupportedFeatures, supported)
		finalized := kmsg.NewApiVersionsResponseFinalizedFeature()
		finalized.Name, finalized.MinVersionLevel, finalized.MaxVersionLevel = f.name, f.level, f.level
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, finalized)
	}
}

// unsupportedApiVersions is the answer to a version that is not served.
func unsupportedApiVersions(apis []api) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 0
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	fillApiVersions(resp, apis)
	return resp
}

func fillApiVersions(resp *kmsg.ApiVersionsResponse, apis []api) {
	for i := range apis {
		key := kmsg.NewApiVersionsResponseApiKey()
		key.ApiKey, key.MinVersion, key.MaxVersion = apis[i].key, apis[i].advertisedMin(), apis[i].max
		resp.ApiKeys = append(resp.ApiKeys, key)
	}
}
