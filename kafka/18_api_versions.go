package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions: v0-3
//
//   - Any version above is answered in v0 with UNSUPPORTED_VERSION and the whole list: clients begin with their newest
//     version and come back with one of ours. The list must hold key 18 itself.
//   - The answer's header never has tags, not even in v3.
//   - v3's software name is not checked: a client with an odd one is still served.

func runApiVersions(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	resp := kreq.ResponseKind().(*kmsg.ApiVersionsResponse)
	fillApiVersions(resp, c.server.apis)
	return resp, nil
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
