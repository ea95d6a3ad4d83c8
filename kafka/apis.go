package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// The API keys that are served.
const (
	keyProduce                 = 0
	keyFetch                   = 1
	keyListOffsets             = 2
	keyMetadata                = 3
	keyApiVersions             = 18
	keyCreateTopics            = 19
	keyDeleteTopics            = 20
	keyDeleteRecords           = 21
	keyInitProducerID          = 22
	keyOffsetForLeaderEpoch    = 23
	keyDescribeConfigs         = 32
	keyCreatePartitions        = 37
	keyIncrementalAlterConfigs = 44
	keyDescribeCluster         = 60
)

// api is one request that is served.
type api struct {
	key  int16
	name string
	// min and max are the versions served. They are those of one real Kafka as a set (2.8, without topic ids, with
	// the floors of 4.0, and Produce 10 for its leader hints): odd sets break clients.
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

// apiTable is what is served, in order of the keys. (A function, since runApiVersions shows it.)
func apiTable() []api {
	return []api{
		{keyProduce, "Produce", 3, 10, shapeProduce, nil},
		{keyFetch, "Fetch", 4, 12, shapeFetch, nil},
		{keyListOffsets, "ListOffsets", 1, 7, shapeListOffsets, runListOffsets},
		{keyMetadata, "Metadata", 0, 9, shapeMetadata, runMetadata},
		{keyApiVersions, "ApiVersions", 0, 3, shapeApiVersions, runApiVersions},
		{keyCreateTopics, "CreateTopics", 2, 6, shapeCreateTopics, runCreateTopics},
		{keyDeleteTopics, "DeleteTopics", 1, 5, shapeDeleteTopics, runDeleteTopics},
		{keyDeleteRecords, "DeleteRecords", 0, 2, shapeDeleteRecords, runDeleteRecords},
		{keyInitProducerID, "InitProducerId", 0, 4, shapeInitProducerID, runInitProducerID},
		{keyOffsetForLeaderEpoch, "OffsetForLeaderEpoch", 2, 4, shapeOffsetForLeaderEpoch, runOffsetForLeaderEpoch},
		{keyDescribeConfigs, "DescribeConfigs", 1, 4, shapeDescribeConfigs, runDescribeConfigs},
		{keyCreatePartitions, "CreatePartitions", 0, 3, shapeCreatePartitions, runCreatePartitions},
		{keyIncrementalAlterConfigs, "IncrementalAlterConfigs", 0, 1, shapeIncrementalAlterConfigs, runIncrementalAlterConfigs},
		{keyDescribeCluster, "DescribeCluster", 0, 0, shapeDescribeCluster, runDescribeCluster},
	}
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

// The shapes of the requests, as the versions of the table above have them.
var (
	shapeProduce = []field{{kind: kNullableString, since: 3}, {kind: kInt16}, {kind: kInt32},
		{kind: kArray, elem: []field{{kind: kString}, // topic
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kBytes}}}}}}

	shapeFetch = []field{{kind: kInt32}, {kind: kInt32}, {kind: kInt32}, {kind: kInt32, since: 3}, {kind: kInt8, since: 4},
		{kind: kInt32, since: 7}, {kind: kInt32, since: 7}, // session id and epoch
		{kind: kArray, elem: []field{{kind: kString},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt32, since: 9}, {kind: kInt64}, {kind: kInt32, since: 12},
				{kind: kInt64, since: 5}, {kind: kInt32}}}}},
		{kind: kArray, since: 7, elem: []field{{kind: kString}, {kind: kInt32s}}}, // forgotten
		{kind: kString, since: 11}}

	shapeListOffsets = []field{{kind: kInt32}, {kind: kInt8, since: 2},
		{kind: kArray, elem: []field{{kind: kString},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt32, since: 4}, {kind: kInt64}}}}}}

	shapeMetadata = []field{{kind: kNullableArray, elem: []field{{kind: kString}}},
		{kind: kInt8, since: 4}, {kind: kInt8, since: 8}, {kind: kInt8, since: 8}}

	shapeApiVersions = []field{{kind: kString, since: 3}, {kind: kString, since: 3}}

	shapeCreateTopics = []field{
		{kind: kArray, elem: []field{{kind: kString}, {kind: kInt32}, {kind: kInt16},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt32s}}},            // assignment
			{kind: kArray, elem: []field{{kind: kString}, {kind: kNullableString}}}}}, // configs
		{kind: kInt32}, {kind: kInt8, since: 1}}

	shapeDeleteTopics = []field{{kind: kStrings}, {kind: kInt32}}

	shapeDeleteRecords = []field{
		{kind: kArray, elem: []field{{kind: kString},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt64}}}}},
		{kind: kInt32}}

	shapeInitProducerID = []field{{kind: kNullableString}, {kind: kInt32}, {kind: kInt64, since: 3}, {kind: kInt16, since: 3}}

	shapeOffsetForLeaderEpoch = []field{{kind: kInt32, since: 3},
		{kind: kArray, elem: []field{{kind: kString},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt32, since: 2}, {kind: kInt32}}}}}}

	shapeDescribeConfigs = []field{
		{kind: kArray, elem: []field{{kind: kInt8}, {kind: kString}, {kind: kNullableStrings}}},
		{kind: kInt8, since: 1}, {kind: kInt8, since: 3}}

	shapeCreatePartitions = []field{
		{kind: kArray, elem: []field{{kind: kString}, {kind: kInt32},
			{kind: kNullableArray, elem: []field{{kind: kInt32s}}}}},
		{kind: kInt32}, {kind: kInt8}}

	shapeIncrementalAlterConfigs = []field{
		{kind: kArray, elem: []field{{kind: kInt8}, {kind: kString},
			{kind: kArray, elem: []field{{kind: kString}, {kind: kInt8}, {kind: kNullableString}}}}},
		{kind: kInt8}}

	shapeDescribeCluster = []field{{kind: kInt8}}
)
