package transport

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/http"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// TestFrames_Golden pins the bytes that docs/format.md draws.
func TestFrames_Golden(t *testing.T) {
	for _, row := range []struct {
		name string
		got  []byte
		want string
	}{
		{"append", Append{1, 2, 3, 4, 5, 6}.AppendTo(nil), "0000000100000002" + "0000000000000003" + "0000000000000004" + "0000000000000005" + "0000000000000006"},
		{"ack", Ack{1, 2, 3, 4}.AppendTo(nil), "0000000100000002" + "0000000000000003" + "0000000000000004"},
		{"mark", Mark{1, 2, 3, 4}.AppendTo(nil), "0000000100000002" + "0000000000000003" + "0000000000000004"},
		{"rewind", Rewind{1, 2, 3}.AppendTo(nil), "0000000100000002" + "0000000000000003"},
	} {
		if got := hex.EncodeToString(row.got); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

func TestFrames_RefuseNonsense(t *testing.T) {
	long := make([]byte, AppendHeaderSize)
	for name, err := range map[string]error{
		"append without batches": second(DecodeAppend(Append{Epoch: 1}.AppendTo(nil))),
		"append of epoch 0":      second(DecodeAppend(append(Append{}.AppendTo(nil), 1))),
		"append below segment":   second(DecodeAppend(append(Append{Epoch: 1, SegmentBase: 2, Base: 1}.AppendTo(nil), 1))),
		"append, negative mark":  second(DecodeAppend(append(Append{Epoch: 1, HighWatermark: -1}.AppendTo(nil), 1))),
		"acks of no length":      last(DecodeAcks(nil, nil)),
		"acks of odd length":     last(DecodeAcks(nil, long)),
		"ack beyond the end":     last(DecodeAcks(nil, Ack{1, 1, 5, 4}.AppendTo(nil))),
		"marks of odd length":    last(DecodeMarks(nil, long)),
		"negative log start":     last(DecodeMarks(nil, Mark{1, 1, 5, -4}.AppendTo(nil))),
		"rewind too long":        last(DecodeRewind(long)),
		"rewind below zero":      last(DecodeRewind(Rewind{1, 1, -1}.AppendTo(nil))),
		"hot frame as control":   last(DecodeControl(FrameAppend, nil)),
		"unknown frame":          last(DecodeControl(200, nil)),
		"control that is broken": last(DecodeControl(FrameFollow, []byte{0xff})),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func last[T any](_ T, err error) error           { return err }
func second[T, U any](_ T, _ U, err error) error { return err }

func TestRefuse_KeepsTheReason(t *testing.T) {
	r := RefuseFollow("b", 3, 4, &vtop.FencedError{Claimed: 4, Reason: "lease moved"})
	if err := RefusalOf(r); !errors.Is(err, vtop.ErrFenced) || r.GetHandle() != 3 || r.GetEpoch() != 4 {
		t.Errorf("%v", err)
	}
	if err := RefusalOf(&peerpb.Refuse{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("refusal without a reason: %v", err)
	}
}

func TestCodes_TableIsOneToOne(t *testing.T) {
	seen := map[peerpb.Code]bool{peerpb.Code_CODE_UNSPECIFIED: true, peerpb.Code_CODE_INTERNAL: true}
	for _, row := range codes {
		seen[row.code] = true
		if err := ErrorOf(row.code, "text"); CodeOf(err) != row.code || err.Error() != "text" {
			t.Errorf("%s became %v", row.code, err)
		}
		if got := CodeOf(row.err); got != row.code {
			t.Errorf("%v has code %s, want %s", row.err, got, row.code)
		}
	}
	for n := range peerpb.Code_name {
		if !seen[peerpb.Code(n)] {
			t.Errorf("%s stands for no error", peerpb.Code(n))
		}
	}
	if CodeOf(nil) != 0 || ErrorOf(0, "") != nil {
		t.Error("no error has a code")
	}
	if err := ErrorOf(999, "from the future"); CodeOf(err) != 999 || Retryable(err) {
		t.Errorf("unknown code: %v", err)
	}
}

func TestConvert_RoundTripsAndRefuses(t *testing.T) {
	r := vtop.Range{Topic: vtop.TopicID{9}, Index: 4}
	if got, err := RangeFrom(RangeTo(r)); err != nil || got != r {
		t.Errorf("%v %v", got, err)
	}
	runs := []vtop.EpochRun{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 10}}
	if got, err := RunsFrom(RunsTo(runs)); err != nil || !reflect.DeepEqual(got, runs) {
		t.Errorf("%v %v", got, err)
	}
	for name, err := range map[string]error{
		"short topic":    last(RangeFrom(&peerpb.Range{Topic: []byte{1}})),
		"no topic":       last(RangeFrom(nil)),
		"negative index": last(RangeFrom(&peerpb.Range{Topic: bytes.Repeat([]byte{1}, 16), Index: -1})),
		"falling starts": last(RunsFrom([]*peerpb.EpochRun{{Epoch: 1, Start: 5}, {Epoch: 2, Start: 5}})),
		"falling epochs": last(RunsFrom([]*peerpb.EpochRun{{Epoch: 2, Start: 5}, {Epoch: 2, Start: 6}})),
		"negative start": last(RunsFrom([]*peerpb.EpochRun{{Epoch: 2, Start: -5}})),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeAppend(f *testing.F) {
	f.Add(append(Append{1, 2, 3, 4, 5, 6}.AppendTo(nil), "batches"...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		a, rest, err := DecodeAppend(body)
		if err == nil && !bytes.Equal(append(a.AppendTo(nil), rest...), body) {
			t.Errorf("%x decoded as %+v", body, a)
		}
	})
}

func FuzzDecodeHotItems(f *testing.F) {
	f.Add(Mark{4, 3, 2, 1}.AppendTo(Ack{1, 2, 3, 4}.AppendTo(nil)))
	f.Add(Rewind{1, 2, 3}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		var acks, marks, rewind []byte
		if items, err := DecodeAcks(nil, body); err == nil {
			for _, i := range items {
				acks = i.AppendTo(acks)
			}
			same(t, "acks", acks, body)
		}
		if items, err := DecodeMarks(nil, body); err == nil {
			for _, i := range items {
				marks = i.AppendTo(marks)
			}
			same(t, "marks", marks, body)
		}
		if r, err := DecodeRewind(body); err == nil {
			same(t, "rewind", r.AppendTo(rewind), body)
		}
	})
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %x encoded again as %x", what, want, got)
	}
}

func FuzzDecodeControl(f *testing.F) {
	for _, m := range []proto.Message{
		&peerpb.Follow{Handle: 1, Range: RangeTo(vtop.Range{Topic: vtop.TopicID{1}}), Epoch: 2}, &peerpb.FollowOK{Runs: []*peerpb.EpochRun{{Epoch: 1}}},
		&peerpb.Refuse{Error: &peerpb.ErrorDetail{Code: 2}}, &peerpb.Reset{Producers: []byte{1}}, &peerpb.Unfollow{}, &peerpb.End{},
		&peerpb.Beat{Seq: 1, DiskOk: true}, &peerpb.BeatAck{Leader: true},
	} {
		body, err := proto.Marshal(m)
		must(f, err)
		kind, _ := ControlType(m)
		f.Add(byte(kind), body)
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		m, err := DecodeControl(FrameType(kind), body)
		if err != nil {
			return
		}
		if got, ok := ControlType(m); !ok || got != FrameType(kind) {
			t.Errorf("%s frame decoded as %T", FrameType(kind), m)
		}
		switch m := m.(type) {
		case *peerpb.Refuse:
			_ = RefusalOf(m).Error()
		case *peerpb.Follow:
			_, _ = RangeFrom(m.GetRange()) // must not crash
		case *peerpb.FollowOK:
			_, _ = RunsFrom(m.GetRuns()) // must not crash
		}
	})
}

func FuzzHello(f *testing.F) {
	var b bytes.Buffer
	must(f, writeMessage(&b, "", helloOf(Self{Name: "a", Cluster: clusterA}, "b", Heartbeat)))
	f.Add(b.Bytes())
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		h := new(peerpb.Hello)
		if readMessage(bytes.NewReader(raw), h) != nil {
			return
		}
		from, err := callerOf(h, "addr", "")
		if err == nil && fits(Self{Name: "b", Cluster: clusterA}, from, vtop.NodeName(h.GetTo()), true) == nil && from.Cluster != clusterA {
			t.Errorf("%+v was let in", from)
		}
		r := new(peerpb.HelloReply)
		if readMessage(bytes.NewReader(raw), r) == nil {
			_, _ = checkReply(Self{Name: "b", Cluster: clusterA}, Target{}, r, "") // must not crash
		}
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add("1", clusterA.String(), "3", "a", "", "7")
	f.Add("-1", "x", "", "", "", "")
	f.Fuzz(func(t *testing.T, protocol, cluster, generation, from, storage, incarnation string) {
		h := http.Header{headerProtocol: {protocol}, headerCluster: {cluster}, headerGeneration: {generation}, headerFrom: {from}, headerStorage: {storage}, headerIncarnation: {incarnation}}
		hello, err := helloFromHeaders(h)
		if err != nil {
			return
		}
		caller, err := callerOf(hello, "addr", "")
		if err != nil {
			t.Fatal(err)
		}
		again := http.Header{}
		setHeaders(again, caller.Self, "")
		hello2, err := helloFromHeaders(again)
		if err != nil || hello2.GetName() != from || hello2.GetGeneration() != hello.GetGeneration() || !bytes.Equal(hello2.GetClusterId(), hello.GetClusterId()) {
			t.Errorf("%v came back as %v: %v", hello, hello2, err)
		}
	})
}

func FuzzTargetOf(f *testing.F) {
	f.Add("node-1", "10.0.0.1:9640")
	f.Add("", "[::1]:9640")
	f.Fuzz(func(t *testing.T, name, addr string) {
		want := Target{Name: vtop.NodeName(name), Addr: addr}
		if got, err := targetOf(hostOf(want)); err != nil || got != want {
			t.Errorf("%v came back as %v: %v", want, got, err)
		}
		_, _ = targetOf(addr) // must not crash
	})
}

func FuzzReadBody(f *testing.F) {
	f.Add([]byte("abc"), 3)
	f.Add(make([]byte, firstRead+1), firstRead+1)
	f.Fuzz(func(t *testing.T, raw []byte, n int) {
		if n < 0 || n > MaxFrame {
			return
		}
		b, err := readBody(bytes.NewReader(raw), n)
		if (err == nil) != (n <= len(raw)) {
			t.Fatalf("%d of %d bytes: %v", n, len(raw), err)
		}
		if err == nil {
			same(t, "body", b.bytes[:n], raw[:n])
			b.put()
		}
	})
}
