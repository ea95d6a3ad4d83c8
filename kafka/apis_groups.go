package kafka

// The API keys of the classic consumer group protocol.
const (
	keyOffsetCommit    = 8
	keyOffsetFetch     = 9
	keyFindCoordinator = 10
	keyJoinGroup       = 11
	keyHeartbeat       = 12
	keyLeaveGroup      = 13
	keySyncGroup       = 14
	keyDescribeGroups  = 15
	keyListGroups      = 16
	keyDeleteGroups    = 42
	keyOffsetDelete    = 47
)

// groupAPIs are the requests of consumer groups, classic protocol, and of their offsets.
func groupAPIs() []api {
	return []api{
		{keyOffsetCommit, "OffsetCommit", 2, 9, shapeOffsetCommit, runOffsetCommit},
		{keyOffsetFetch, "OffsetFetch", 1, 9, shapeOffsetFetch, runOffsetFetch},
		{keyFindCoordinator, "FindCoordinator", 0, 6, shapeFindCoordinator, runFindCoordinator},
		{keyJoinGroup, "JoinGroup", 0, 9, shapeJoinGroup, runJoinGroup},
		{keyHeartbeat, "Heartbeat", 0, 4, shapeHeartbeat, runHeartbeat},
		{keyLeaveGroup, "LeaveGroup", 0, 5, shapeLeaveGroup, runLeaveGroup},
		{keySyncGroup, "SyncGroup", 0, 5, shapeSyncGroup, runSyncGroup},
		{keyDescribeGroups, "DescribeGroups", 0, 6, shapeDescribeGroups, runDescribeGroups},
		{keyListGroups, "ListGroups", 0, 5, shapeListGroups, runListGroups},
		{keyDeleteGroups, "DeleteGroups", 0, 2, shapeDeleteGroups, runDeleteGroups},
		{keyOffsetDelete, "OffsetDelete", 0, 0, shapeOffsetDelete, runOffsetDelete},
	}
}

// Their shapes.
var (
	shapeOffsetCommit = []field{
		{kind: kString}, {kind: kInt32}, {kind: kString}, {kind: kNullableString, since: 7}, {kind: kInt64, since: 2, before: 5},
		{kind: kArray, elem: []field{{kind: kString},
			{kind: kArray, elem: []field{{kind: kInt32}, {kind: kInt64}, {kind: kInt32, since: 6}, {kind: kNullableString}}}}}}

	shapeOffsetFetch = []field{
		{kind: kString, before: 8},
		{kind: kArray, before: 2, elem: []field{{kind: kString}, {kind: kInt32s}}},
		{kind: kNullableArray, since: 2, before: 8, elem: []field{{kind: kString}, {kind: kInt32s}}},
		{kind: kArray, since: 8, elem: []field{{kind: kString}, {kind: kNullableString, since: 9}, {kind: kInt32, since: 9},
			{kind: kNullableArray, elem: []field{{kind: kString}, {kind: kInt32s}}}}},
		{kind: kInt8, since: 7}}

	shapeFindCoordinator = []field{{kind: kString, before: 4}, {kind: kInt8, since: 1}, {kind: kStrings, since: 4}}

	shapeJoinGroup = []field{
		{kind: kString}, {kind: kInt32}, {kind: kInt32, since: 1}, {kind: kString}, {kind: kNullableString, since: 5}, {kind: kString},
		{kind: kArray, elem: []field{{kind: kString}, {kind: kBytes}}}, {kind: kNullableString, since: 8}}

	shapeHeartbeat = []field{{kind: kString}, {kind: kInt32}, {kind: kString}, {kind: kNullableString, since: 3}}

	shapeLeaveGroup = []field{
		{kind: kString}, {kind: kString, before: 3},
		{kind: kArray, since: 3, elem: []field{{kind: kString}, {kind: kNullableString}, {kind: kNullableString, since: 5}}}}

	shapeSyncGroup = []field{
		{kind: kString}, {kind: kInt32}, {kind: kString}, {kind: kNullableString, since: 3}, {kind: kNullableString, since: 5}, {kind: kNullableString, since: 5},
		{kind: kArray, elem: []field{{kind: kString}, {kind: kBytes}}}}

	shapeDescribeGroups = []field{{kind: kStrings}, {kind: kInt8, since: 3}}

	shapeListGroups = []field{{kind: kStrings, since: 4}, {kind: kStrings, since: 5}}

	shapeDeleteGroups = []field{{kind: kStrings}}

	shapeOffsetDelete = []field{{kind: kString},
		{kind: kArray, elem: []field{{kind: kString}, {kind: kArray, elem: []field{{kind: kInt32}}}}}}
)
