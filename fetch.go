package vtop

// AnyEpoch as the client's epoch says that the client does not name one.
const AnyEpoch Epoch = -1

// FetchSpec asks for records of one range.
type FetchSpec struct {
	// Offset of the first record wanted.
	Offset Offset
	// MaxBytes of whole batches, 0 or more. 0 asks only for the checks and the watermarks.
	MaxBytes int
	// AtLeastOne: return the first batch even if it is larger than MaxBytes.
	AtLeastOne bool
	// ClientEpoch is the leader epoch the client believes in, or AnyEpoch.
	ClientEpoch Epoch
	// LastFetchedEpoch is the epoch of the record below Offset as the client has it, or -1: asks for Diverging. One above the
	// leader's own is ErrEpochUnknown.
	LastFetchedEpoch Epoch
}

// FetchResult is what Fetch found.
type FetchResult struct {
	// Dst is the caller's dst with the batches appended; it may have been moved to a larger array.
	Dst []byte
	// HighWatermark and LogStart of the range; -1 if this node does not know them, which for the first holds until a
	// new leader's has reached its epoch's start (I7): clients take -1 for 'unknown' and keep what they knew.
	HighWatermark, LogStart Offset
	// Diverging is set, and nothing was read, if the client's LastFetchedEpoch and Offset are not in this log: the
	// largest epoch at or below the client's, and its end.
	Diverging *EpochOffset
}

// EpochOffset is an offset together with the leader epoch that the answer is about; -1 for none.
type EpochOffset struct {
	Epoch  Epoch
	Offset Offset
}

// TimeOffset is a record found by time, in milliseconds since 1970.
type TimeOffset struct {
	Timestamp int64
	Offset    Offset
	Epoch     Epoch
}

// MaxTimestamp as a time asks for the first of the records with the greatest timestamp (KIP-734).
const MaxTimestamp int64 = -3
