package kafka

// The API keys of the requests about the cluster and its topics.
const (
	keyMetadata                = 3
	keyApiVersions             = 18
	keyCreateTopics            = 19
	keyDeleteTopics            = 20
	keyDescribeConfigs         = 32
	keyCreatePartitions        = 37
	keyIncrementalAlterConfigs = 44
	keyDescribeCluster         = 60
	keyDescribeTopicPartitions = 75
)

// topicAPIs are the requests about the cluster and its topics.
func topicAPIs() []api {
	return []api{
		{keyMetadata, "Metadata", 0, 13, shapeMetadata, runMetadata},
		{keyApiVersions, "ApiVersions", 0, 4, shapeApiVersions, runApiVersions},
		{keyCreateTopics, "CreateTopics", 2, 7, shapeCreateTopics, runCreateTopics},
		{keyDeleteTopics, "DeleteTopics", 1, 6, shapeDeleteTopics, runDeleteTopics},
		{keyDescribeConfigs, "DescribeConfigs", 1, 4, shapeDescribeConfigs, runDescribeConfigs},
		{keyCreatePartitions, "CreatePartitions", 0, 3, shapeCreatePartitions, runCreatePartitions},
		{keyIncrementalAlterConfigs, "IncrementalAlterConfigs", 0, 1, shapeIncrementalAlterConfigs, runIncrementalAlterConfigs},
		{keyDescribeCluster, "DescribeCluster", 0, 2, shapeDescribeCluster, runDescribeCluster},
		{keyDescribeTopicPartitions, "DescribeTopicPartitions", 0, 0, shapeDescribeTopicPartitions, runDescribeTopicPartitions},
	}
}

// Their shapes.
var (
	shapeMetadata = []field{
		{kind: kNullableArray, elem: []field{{kind: kUUID, since: 10}, {kind: kString, before: 10}, {kind: kNullableString, since: 10}}},
		{kind: kInt8, since: 4}, {kind: kInt8, since: 8, before: 11}, {kind: kInt8, since: 8}}

	shapeApiVersions = []field{{kind: kString, since: 3}, {kind: kString, since: 3}}

	shapeCreateTopics = []field{
		{kind: kArray, elem: []field{{kind: kString}, {kind: kInt32}, {kind: kInt16},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt32s}}},            // assignment
			{kind: kArray, elem: []field{{kind: kString}, {kind: kNullableString}}}}}, // configs
		{kind: kInt32}, {kind: kInt8, since: 1}}

	shapeDeleteTopics = []field{{kind: kStrings, before: 6},
		{kind: kArray, since: 6, elem: []field{{kind: kNullableString}, {kind: kUUID}}}, {kind: kInt32}}

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

	shapeDescribeCluster = []field{{kind: kInt8}, {kind: kInt8, since: 1}, {kind: kInt8, since: 2}}

	shapeDescribeTopicPartitions = []field{{kind: kArray, elem: []field{{kind: kString}}}, {kind: kInt32},
		{kind: kNullableStruct, elem: []field{{kind: kString}, {kind: kInt32}}}}
)
