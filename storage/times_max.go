package storage

import (
	"errors"

	"github.com/vtop-log/vtop"
)

// OffsetOfMaxTimestamp returns the first of the records below limit, at or above the log start, that have the latest
// timestamp (ms); found is false if there are none. It goes by the indexes, reads what they leave open, and decompresses
// one batch. vtop.ErrDamaged if the answer may lie in a hole.
func (l *Log) OffsetOfMaxTimestamp(limit vtop.Offset) (offset vtop.Offset, timestamp int64, found bool, err error) {
	return 0, 0, false, errors.ErrUnsupported
}
