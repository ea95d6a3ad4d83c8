package kafka

// The API keys of the requests about records.
const (
	keyProduce              = 0
	keyFetch                = 1
	keyListOffsets          = 2
	keyDeleteRecords        = 21
	keyInitProducerID       = 22
	keyOffsetForLeaderEpoch = 23
)

// dataAPIs are the requests about records.
func dataAPIs() []api {
	return []api{
		{keyProduce, "Produce", 3, 13, shapeProduce, nil},
		{keyFetch, "Fetch", 4, 18, shapeFetch, nil},
		{keyListOffsets, "ListOffsets", 1, 10, shapeListOffsets, runListOffsets},
		{keyDeleteRecords, "DeleteRecords", 0, 2, shapeDeleteRecords, runDeleteRecords},
		{keyInitProducerID, "InitProducerId", 0, 5, shapeInitProducerID, runInitProducerID},
		{keyOffsetForLeaderEpoch, "OffsetForLeaderEpoch", 2, 4, shapeOffsetForLeaderEpoch, runOffsetForLeaderEpoch},
	}
}

// Their shapes.
var (
	shapeProduce = []field{{kind: kNullableString, since: 3}, {kind: kInt16}, {kind: kInt32},
		{kind: kArray, elem: []field{{kind: kString, before: 13}, {kind: kUUID, since: 13}, // topic
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kBytes}}}}}}

	shapeFetch = []field{{kind: kInt32, before: 15}, {kind: kInt32}, {kind: kInt32}, {kind: kInt32, since: 3}, {kind: kInt8, since: 4},
		{kind: kInt32, since: 7}, {kind: kInt32, since: 7}, // session id and epoch
		{kind: kArray, elem: []field{{kind: kString, before: 13}, {kind: kUUID, since: 13},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt32, since: 9}, {kind: kInt64}, {kind: kInt32, since: 12},
				{kind: kInt64, since: 5}, {kind: kInt32}}}}},
		{kind: kArray, since: 7, elem: []field{{kind: kString, before: 13}, {kind: kUUID, since: 13}, {kind: kInt32s}}}, // forgotten
		{kind: kString, since: 11}}

	shapeListOffsets = []field{{kind: kInt32}, {kind: kInt8, since: 2},
		{kind: kArray, elem: []field{{kind: kString},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt32, since: 4}, {kind: kInt64}}}}},
		{kind: kInt32, since: 10}}

	shapeDeleteRecords = []field{
		{kind: kArray, elem: []field{{kind: kString},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt64}}}}},
		{kind: kInt32}}

	shapeInitProducerID = []field{{kind: kNullableString}, {kind: kInt32}, {kind: kInt64, since: 3}, {kind: kInt16, since: 3}}

	shapeOffsetForLeaderEpoch = []field{{kind: kInt32, since: 3},
		{kind: kArray, elem: []field{{kind: kString},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt32, since: 2}, {kind: kInt32}}}}}}
)
