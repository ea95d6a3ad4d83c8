package kafka

// The API keys of the consumer group protocol in which the coordinator assigns (KIP-848).
const (
	keyConsumerGroupHeartbeat = 68
	keyConsumerGroupDescribe  = 69
)

// consumerAPIs are the requests of that protocol. Offsets go by the requests of the classic one.
func consumerAPIs() []api {
	return []api{
		{keyConsumerGroupHeartbeat, "ConsumerGroupHeartbeat", 0, 1, shapeConsumerGroupHeartbeat, runConsumerGroupHeartbeat},
		{keyConsumerGroupDescribe, "ConsumerGroupDescribe", 0, 1, shapeConsumerGroupDescribe, runConsumerGroupDescribe},
	}
}

// Their shapes.
var (
	shapeConsumerGroupHeartbeat = []field{
		{kind: kString}, {kind: kString}, {kind: kInt32}, {kind: kNullableString}, {kind: kNullableString}, {kind: kInt32},
		{kind: kNullableStrings}, {kind: kNullableString, since: 1}, {kind: kNullableString},
		{kind: kNullableArray, elem: []field{{kind: kUUID}, {kind: kInt32s}}}}

	shapeConsumerGroupDescribe = []field{{kind: kStrings}, {kind: kInt8}}
)
