package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/fsm"
)

// api is one request that is served.
type api struct {
	key  int16
	name string
	// min and max are the versions served. As a set they are those of one real Kafka, 4.1: odd sets break clients. A test
	// holds every row to that.
	min, max int16
	// shape of the request, for the guard.
	shape []field
	// run answers the request; nil for Produce and Fetch, which have their own ways through conn.go.
	run func(*call, kmsg.Request) (kmsg.Response, error)
}

// advertisedMin is min, save for Produce: librdkafka up to 2.0 sends batches uncompressed, without a word, to a server
// whose Produce does not begin at 0. Versions 0 to 2 are refused all the same, as Kafka 4 does.
func (a *api) advertisedMin() int16 {
	if a.key == keyProduce {
		return 0
	}
	return a.min
}

// parks says that a request waits for other clients. It gives back what is reserved for its elements once it is decoded, since else a
// few that wait would hold up all others; so it may have few.
func (a *api) parks() bool { return a.key == keyJoinGroup || a.key == keySyncGroup }

// most is how many elements a request may have.
func (a *api) most() int {
	switch a.key {
	case keyJoinGroup:
		return 64 // ways of assignment that a member knows
	case keySyncGroup:
		return fsm.MaxGroupMembers
	}
	return maxElements
}

// apiTable is what is served, in order of the keys: the rows of apis_*.go, which hold the keys and shapes as well. (A
// function, since runApiVersions shows it.)
func apiTable() []api {
	all := slices.Concat(dataAPIs(), topicAPIs(), adminAPIs(), groupAPIs(), consumerAPIs())
	slices.SortFunc(all, func(a, b api) int { return int(a.key) - int(b.key) })
	return all
}

// api finds the API of a key; nil if it is not served.
func (s *Server) api(key int16) *api {
	for i := range s.apis {
		if s.apis[i].key == key {
			return &s.apis[i]
		}
	}
	return nil
}

// newRequest makes an empty request of the version.
func (a *api) newRequest(version int16) kmsg.Request {
	req := kmsg.RequestForKey(a.key)
	req.SetVersion(version)
	return req
}

// flexibleMin is the first version with compact lengths and tags.
func (a *api) flexibleMin() int16 {
	req := kmsg.RequestForKey(a.key)
	for v := a.min; ; v++ {
		if req.SetVersion(v); req.IsFlexible() || v > a.max {
			return v
		}
	}
}
