package kafka

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// sentinels names every sentinel of package vtop.
var sentinels = map[string]error{
	"ErrFenced": vtop.ErrFenced, "ErrNotLeader": vtop.ErrNotLeader, "ErrNotReady": vtop.ErrNotReady,
	"ErrEpochFenced": vtop.ErrEpochFenced, "ErrEpochUnknown": vtop.ErrEpochUnknown, "ErrOffsetOutOfRange": vtop.ErrOffsetOutOfRange,
	"ErrOffsetNotAvailable": vtop.ErrOffsetNotAvailable, "ErrUnknownRange": vtop.ErrUnknownRange, "ErrCorruptBatch": vtop.ErrCorruptBatch,
	"ErrBatchTooLarge": vtop.ErrBatchTooLarge, "ErrUnsupportedBatch": vtop.ErrUnsupportedBatch, "ErrOutOfOrderSequence": vtop.ErrOutOfOrderSequence,
	"ErrStaleProducerEpoch": vtop.ErrStaleProducerEpoch, "ErrNoSpace": vtop.ErrNoSpace, "ErrStorage": vtop.ErrStorage,
	"ErrDamaged": vtop.ErrDamaged, "ErrReplicaLost": vtop.ErrReplicaLost, "ErrOverloaded": vtop.ErrOverloaded,
	"ErrTimeout": vtop.ErrTimeout, "ErrClosed": vtop.ErrClosed,
}

// transient are the faults that pass: a client that is told of one must try again, and must not take its producer
// state for lost (D2).
var transient = []string{"ErrFenced", "ErrNotLeader", "ErrNotReady", "ErrReplicaLost", "ErrNoSpace", "ErrStorage", "ErrOverloaded", "ErrTimeout", "ErrClosed", "ErrOffsetNotAvailable"}

func TestErrors_EverySentinelHasARow(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, name := range spec.Names {
			if strings.HasPrefix(name.Name, "Err") && sentinels[name.Name] == nil {
				t.Errorf("vtop.%s is not in this test", name.Name)
			}
		}
		return true
	})
	for name, err := range sentinels {
		if !inTable(err) {
			t.Errorf("vtop.%s has no row in the table", name)
		}
	}
}

func inTable(err error) bool {
	for _, row := range codeTable {
		if row.err == err {
			return true
		}
	}
	return false
}

func TestErrors_TransientFaultsAreRetriable(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	s := c.nodes[0].server
	for _, name := range transient {
		err := fmt.Errorf("wrapped: %w", sentinels[name])
		for f, where := range map[face]string{faceProduce: "Produce", faceRead: "Fetch", faceAdmin: "an admin request"} {
			code := s.code(f, err)
			if !kerr.IsRetriable(kerr.ErrorForCode(code)) || code == kerr.UnknownServerError.Code {
				t.Errorf("%s in %s: %v is not retried", name, where, kerr.ErrorForCode(code))
			}
			if f == faceRead && code == kerr.RequestTimedOut.Code {
				t.Errorf("%s in Fetch: the Java consumer dies of REQUEST_TIMED_OUT", name)
			}
		}
	}
	// Case: an error that nobody thought of.
	for f, want := range map[face]*kerr.Error{faceProduce: kerr.RequestTimedOut, faceRead: kerr.NotLeaderForPartition} {
		if code := s.code(f, context.Cause(context.Background())); code != 0 {
			t.Errorf("no error has code %d", code)
		}
		if code := s.code(f, fmt.Errorf("surprise")); code != want.Code {
			t.Errorf("a surprise has code %d", code)
		}
	}
	// Case: refusals of the state machine.
	for code, want := range map[fsm.Code]*kerr.Error{fsm.CodeTopicExists: kerr.TopicAlreadyExists, fsm.CodeUnknownRange: kerr.UnknownTopicOrPartition,
		fsm.CodeNotBootstrapped: kerr.NotController, fsm.CodeStaleEpoch: kerr.NotController, fsm.CodeLimit: kerr.PolicyViolation} {
		if got := s.code(faceAdmin, fmt.Errorf("x: %w", &fsm.Refusal{Code: code, Message: "m"})); got != want.Code {
			t.Errorf("refusal %s has code %d, want %s", code, got, want.Message)
		}
	}
}
