package vtop

// AppendResult is how one admitted record batch ended, for the client that sent it.
type AppendResult struct {
	// Base is the offset of the batch's first record: for a recognised duplicate the one its original got. -1 if the batch
	// was not admitted. With an error and a base the batch is in the leader's log, and its fate is unknown: whoever
	// admits it again writes it twice.
	Base Offset
	// LogStart is the range's log start when the result was made; -1 if unknown.
	LogStart Offset
	// Err is nil when what was asked for (acks) holds. One that wraps ErrTimeout, or ErrNotLeader after admission, means that the outcome
	// is unknown: the retry of an idempotent producer is recognised.
	Err error
}
