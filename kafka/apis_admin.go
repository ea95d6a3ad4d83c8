package kafka

// The API keys of administrators beyond topics and their settings.
const (
	keyDescribeACLs                 = 29
	keyCreateACLs                   = 30
	keyDeleteACLs                   = 31
	keyAlterConfigs                 = 33
	keyAlterReplicaLogDirs          = 34
	keyDescribeLogDirs              = 35
	keyElectLeaders                 = 43
	keyAlterPartitionReassignments  = 45
	keyListPartitionReassignments   = 46
	keyDescribeClientQuotas         = 48
	keyAlterClientQuotas            = 49
	keyDescribeUserScramCredentials = 50
	keyDescribeQuorum               = 55
	keyUpdateFeatures               = 57
	keyDescribeProducers            = 61
	keyDescribeTransactions         = 65
	keyListTransactions             = 66
	keyListConfigResources          = 74
)

// adminAPIs are the requests of administrators beyond topics and their settings.
func adminAPIs() []api {
	return []api{
		{keyDescribeACLs, "DescribeAcls", 1, 3, shapeDescribeACLs, runDescribeACLs},
		{keyCreateACLs, "CreateAcls", 1, 3, shapeCreateACLs, runCreateACLs},
		{keyDeleteACLs, "DeleteAcls", 1, 3, shapeDeleteACLs, runDeleteACLs},
		{keyAlterConfigs, "AlterConfigs", 0, 2, shapeAlterConfigs, runAlterConfigs},
		{keyAlterReplicaLogDirs, "AlterReplicaLogDirs", 1, 2, shapeAlterReplicaLogDirs, runAlterReplicaLogDirs},
		{keyDescribeLogDirs, "DescribeLogDirs", 1, 4, shapeDescribeLogDirs, runDescribeLogDirs},
		{keyElectLeaders, "ElectLeaders", 0, 2, shapeElectLeaders, runElectLeaders},
		{keyAlterPartitionReassignments, "AlterPartitionReassignments", 0, 1, shapeAlterPartitionReassignments, runAlterPartitionReassignments},
		{keyListPartitionReassignments, "ListPartitionReassignments", 0, 0, shapeListPartitionReassignments, runListPartitionReassignments},
		{keyDescribeClientQuotas, "DescribeClientQuotas", 0, 1, shapeDescribeClientQuotas, runDescribeClientQuotas},
		{keyAlterClientQuotas, "AlterClientQuotas", 0, 1, shapeAlterClientQuotas, runAlterClientQuotas},
		{keyDescribeUserScramCredentials, "DescribeUserScramCredentials", 0, 0, shapeDescribeUserScramCredentials, runDescribeUserScramCredentials},
		{keyDescribeQuorum, "DescribeQuorum", 0, 2, shapeDescribeQuorum, runDescribeQuorum},
		{keyUpdateFeatures, "UpdateFeatures", 0, 2, shapeUpdateFeatures, runUpdateFeatures},
		{keyDescribeProducers, "DescribeProducers", 0, 0, shapeTopicPartitions, runDescribeProducers},
		{keyDescribeTransactions, "DescribeTransactions", 0, 0, shapeDescribeTransactions, runDescribeTransactions},
		{keyListTransactions, "ListTransactions", 0, 2, shapeListTransactions, runListTransactions},
		{keyListConfigResources, "ListConfigResources", 0, 1, shapeListConfigResources, runListConfigResources},
	}
}

// The shapes of these requests.
var (
	shapeTopicPartitions = []field{
		{kind: kArray, elem: []field{{kind: kString}, {kind: kInt32s}}}}

	shapeDescribeACLs = []field{{kind: kInt8}, {kind: kNullableString}, {kind: kInt8, since: 1}, {kind: kNullableString}, {kind: kNullableString},
		{kind: kInt8}, {kind: kInt8}}

	shapeCreateACLs = []field{
		{kind: kArray, elem: []field{{kind: kInt8}, {kind: kString}, {kind: kInt8, since: 1}, {kind: kString}, {kind: kString}, {kind: kInt8}, {kind: kInt8}}}}

	shapeDeleteACLs = []field{{kind: kArray, elem: shapeDescribeACLs}}

	shapeAlterConfigs = []field{
		{kind: kArray, elem: []field{{kind: kInt8}, {kind: kString},
			{kind: kArray, elem: []field{{kind: kString}, {kind: kNullableString}}}}},
		{kind: kInt8}}

	shapeAlterReplicaLogDirs = []field{{kind: kArray, elem: []field{{kind: kString}, {kind: kArray, elem: []field{{kind: kString}, {kind: kInt32s}}}}}}

	shapeDescribeLogDirs = []field{
		{kind: kNullableArray, elem: []field{{kind: kString}, {kind: kInt32s}}}}

	shapeElectLeaders = []field{{kind: kInt8, since: 1},
		{kind: kNullableArray, elem: []field{{kind: kString}, {kind: kInt32s}}},
		{kind: kInt32}}

	shapeAlterPartitionReassignments = []field{{kind: kInt32}, {kind: kInt8, since: 1},
		{kind: kArray, elem: []field{{kind: kString},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kNullableInt32s}}}}}}

	shapeListPartitionReassignments = []field{{kind: kInt32},
		{kind: kNullableArray, elem: []field{{kind: kString}, {kind: kInt32s}}}}

	shapeDescribeClientQuotas = []field{
		{kind: kArray, elem: []field{{kind: kString}, {kind: kInt8}, {kind: kNullableString}}},
		{kind: kInt8}}

	shapeAlterClientQuotas = []field{
		{kind: kArray, elem: []field{
			{kind: kArray, elem: []field{{kind: kString}, {kind: kNullableString}}},
			{kind: kArray, elem: []field{{kind: kString}, {kind: kInt64}, {kind: kInt8}}}}},
		{kind: kInt8}}

	shapeDescribeUserScramCredentials = []field{{kind: kNullableArray, elem: []field{{kind: kString}}}}

	shapeDescribeQuorum = []field{
		{kind: kArray, elem: []field{{kind: kString},
			{kind: kArray, elem: []field{{kind: kInt32}}}}}}

	shapeUpdateFeatures = []field{{kind: kInt32},
		{kind: kArray, elem: []field{{kind: kString}, {kind: kInt16}, {kind: kInt8, before: 1}, {kind: kInt8, since: 1}}},
		{kind: kInt8, since: 1}}

	shapeDescribeTransactions = []field{{kind: kStrings}}

	shapeListTransactions = []field{{kind: kStrings}, {kind: kInt64s}, {kind: kInt64, since: 1}, {kind: kNullableString, since: 2}}

	// An array of int8 lies as bytes do, where lengths are compact.
	shapeListConfigResources = []field{{kind: kBytes, since: 1}}
)
