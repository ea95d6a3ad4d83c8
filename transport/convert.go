package transport

import (
	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// UUIDFrom reads an identity from a message field. Nothing, or 16 bytes of zero, is the zero UUID; another
// length is refused with ErrInvalid, naming field.
func UUIDFrom(field string, raw []byte) (vtop.UUID, error) {
	var u vtop.UUID
	if len(raw) == 0 {
		return u, nil
	}
	if len(raw) != len(u) {
		return u, refusef(ErrInvalid, "%s: an identity has 16 bytes, found %d", field, len(raw))
	}
	copy(u[:], raw)
	return u, nil
}

// UUIDBytes is the reverse of UUIDFrom; nil for the zero UUID.
func UUIDBytes(u vtop.UUID) []byte {
	if u.IsZero() {
		return nil
	}
	return append([]byte(nil), u[:]...)
}

// RangeFrom reads a range. A missing one, a zero topic or a negative index is refused with ErrInvalid.
func RangeFrom(r *peerpb.Range) (vtop.Range, error) {
	topic, err := UUIDFrom("range.topic", r.GetTopic())
	if err != nil {
		return vtop.Range{}, err
	}
	if topic.IsZero() || r.GetIndex() < 0 {
		return vtop.Range{}, refusef(ErrInvalid, "range: topic %s, index %d", topic, r.GetIndex())
	}
	return vtop.Range{Topic: topic, Index: r.GetIndex()}, nil
}

// RangeTo is the reverse of RangeFrom.
func RangeTo(r vtop.Range) *peerpb.Range {
	return &peerpb.Range{Topic: UUIDBytes(r.Topic), Index: r.Index}
}

// RunsFrom reads the epochs of a log. Starts and epochs must rise, else ErrInvalid.
func RunsFrom(runs []*peerpb.EpochRun) ([]vtop.EpochRun, error) {
	out := make([]vtop.EpochRun, 0, len(runs))
	for i, run := range runs {
		if i > 0 && (run.GetStart() <= runs[i-1].GetStart() || run.GetEpoch() <= runs[i-1].GetEpoch()) {
			return nil, refusef(ErrInvalid, "runs[%d]: epoch %d at %d follows epoch %d at %d",
				i, run.GetEpoch(), run.GetStart(), runs[i-1].GetEpoch(), runs[i-1].GetStart())
		}
		if run.GetStart() < 0 || run.GetEpoch() < 0 {
			return nil, refusef(ErrInvalid, "runs[%d]: epoch %d at %d", i, run.GetEpoch(), run.GetStart())
		}
		out = append(out, vtop.EpochRun{Epoch: vtop.Epoch(run.GetEpoch()), Start: vtop.Offset(run.GetStart())})
	}
	return out, nil
}

// RunsTo is the reverse of RunsFrom.
func RunsTo(runs []vtop.EpochRun) []*peerpb.EpochRun {
	out := make([]*peerpb.EpochRun, len(runs))
	for i, run := range runs {
		out[i] = &peerpb.EpochRun{Epoch: int32(run.Epoch), Start: int64(run.Start)}
	}
	return out
}
