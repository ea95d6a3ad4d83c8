package fsm

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// MaxResult is the longest encoded outcome in bytes.
const MaxResult = 16 << 20

// EncodeResult returns the wire form of an outcome, for a proposer on another node.
func EncodeResult(o Outcome) ([]byte, error) {
	p := &fsmpb.Outcome{
		Index: o.Index, Refusal: putRefusal(o.Refusal),
		Items: mapSlice(o.Items, func(i Item) *fsmpb.Outcome_Item {
			return &fsmpb.Outcome_Item{
				Range: putRangeID(i.Range), Epoch: int32(i.Epoch), Refusal: putRefusal(i.Refusal), Repair: uint64(i.Repair), Existing: i.Existing,
				Slot: int32(i.Slot), Group: []byte(i.Group),
			}
		}),
		Broker: int32(o.Registration.Broker), Storage: putUUID(o.Registration.Storage), Incarnation: uint64(o.Registration.Incarnation),
		ReplicaId: uint64(o.ReplicaID), ConfigVersion: o.ConfigVersion,
		ProducerFirst: o.ProducerIDs.First, ProducerCount: o.ProducerIDs.Count,
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	if len(b) > MaxResult {
		return nil, fmt.Errorf("encode result: %d bytes, at most %d", len(b), MaxResult)
	}
	return b, nil
}

// DecodeResult reads what EncodeResult wrote. Fields of a newer build are passed over: the outcome stands in the
// applied state, too. The outcome does not alias b.
func DecodeResult(b []byte) (Outcome, error) {
	if len(b) > MaxResult {
		return Outcome{}, fmt.Errorf("decode result: %d bytes, at most %d", len(b), MaxResult)
	}
	p := new(fsmpb.Outcome)
	if err := proto.Unmarshal(b, p); err != nil {
		return Outcome{}, fmt.Errorf("decode result: %w", err)
	}
	r := new(reader)
	o := Outcome{
		Index: p.GetIndex(), Refusal: readRefusal(p.GetRefusal()),
		Items: mapSlice(p.GetItems(), func(i *fsmpb.Outcome_Item) Item {
			return Item{
				Range: r.rangeID(i.GetRange()), Epoch: vtop.Epoch(i.GetEpoch()), Refusal: readRefusal(i.GetRefusal()),
				Repair: RepairID(i.GetRepair()), Existing: i.GetExisting(),
				Slot: Slot(i.GetSlot()), Group: string(i.GetGroup()),
			}
		}),
		Registration: Registration{
			Broker: vtop.BrokerID(p.GetBroker()), Storage: r.uuid(p.GetStorage()), Incarnation: vtop.Incarnation(p.GetIncarnation()),
		},
		ReplicaID: vtop.ReplicaID(p.GetReplicaId()), ConfigVersion: p.GetConfigVersion(),
		ProducerIDs: ProducerBlock{First: p.GetProducerFirst(), Count: p.GetProducerCount()},
	}
	if r.err != nil {
		return Outcome{}, fmt.Errorf("decode result: %w", r.err)
	}
	return o, nil
}

func putRefusal(r *Refusal) *fsmpb.Refusal {
	if r == nil {
		return nil
	}
	return &fsmpb.Refusal{Code: uint32(r.Code), Message: r.Message}
}

func readRefusal(p *fsmpb.Refusal) *Refusal {
	if p == nil {
		return nil
	}
	return &Refusal{Code: Code(p.GetCode()), Message: p.GetMessage()}
}
