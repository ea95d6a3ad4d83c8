package storage

// ProducerInfo is what a replica knows of one idempotent producer.
type ProducerInfo struct {
	ID    int64
	Epoch int16
	// LastSequence is that of its last record.
	LastSequence int32
	// Clock is the latest batch time, in milliseconds since 1970, that the range had seen with this producer's last batch.
	Clock int64
}

// Producers lists the idempotent producers that the log knows, at most limit of them, the last to write first. Records that are
// not committed yet count.
func (l *Log) Producers(limit int) []ProducerInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.producers == nil || limit <= 0 {
		return nil
	}
	out := make([]ProducerInfo, 0, min(limit, len(l.producers.byID)))
	for p := l.producers.newest; p != nil && len(out) < limit; p = p.older {
		info := ProducerInfo{ID: p.id, Epoch: p.epoch, LastSequence: -1, Clock: p.clock}
		if p.count > 0 {
			info.LastSequence = p.last[p.count-1].lastSeq
		}
		out = append(out, info)
	}
	return out
}
