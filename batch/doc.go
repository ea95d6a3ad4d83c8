// Package batch implements a view of Kafka's record batch, format 2: the unit that clients send, that segments
// hold and that fetches return, verbatim.
//
// Parse cuts one Batch off a buffer and looks at its bounds only; Check looks at all that can be checked without
// decompressing, the CRC32C among it; Stamp writes the offset and the leader epoch, which the CRC does not cover.
// A Batch aliases the bytes it was cut from and no method allocates, except Records and Build, which decompress
// and compress and are for tools, tests and the search for a timestamp. The path of a produced record never calls
// them.
//
// The bytes are drawn in format.go. Batches of format 0 and 1, control batches and transactional batches are
// refused with vtop.ErrUnsupportedBatch.
package batch
