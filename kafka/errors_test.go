package kafka

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/placement"
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
	s.log = hclog.NewNullLogger()
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

// clientCommands are the commands of the state machine that requests of clients lead to, by the files that state what they are
// refused for.
var clientCommands = []string{"allocate_producer_ids", "alter_client_quotas", "alter_topic_config", "create_ranges", "create_topic", "delete_topic", "move_log_start", "set_preferred"}

// What the node and its state machine refuse an administrator for has a code that says so. UNKNOWN_SERVER_ERROR says only that
// nobody thought of it, and some clients try again for ever.
func TestErrors_RefusalsOfAdministratorsHaveCodes(t *testing.T) {
	s := newFakeCluster(t, 1, nil).nodes[0].server
	numbers := refusalCodes(t)
	named := regexp.MustCompile(`\bCode[A-Z]\w+`)
	for _, command := range clientCommands {
		text, err := os.ReadFile("../fsm/cmd_" + command + ".go")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "//") {
				continue
			}
			for _, name := range named.FindAllString(line, -1) {
				if got := s.adminCode(fmt.Errorf("x: %w", &fsm.Refusal{Code: numbers[name], Message: "m"})); got == kerr.UnknownServerError.Code {
					t.Errorf("refusal %s of %s has no code of Kafka's", name, command)
				}
			}
		}
	}
	few := fmt.Errorf("place: %w", &placement.TooFewNodesError{Wanted: 3, Have: 2})
	if got := s.adminCode(few); got != kerr.InvalidReplicationFactor.Code {
		t.Errorf("%v has code %v, want %v", few, kerr.ErrorForCode(got), kerr.InvalidReplicationFactor)
	}
}

// refusalCodes reads the codes of refusals from the source.
func refusalCodes(t *testing.T) map[string]fsm.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../fsm/outcome.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]fsm.Code{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		if value, ok := spec.Values[0].(*ast.BasicLit); ok {
			number, err := strconv.ParseUint(value.Value, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			out[spec.Names[0].Name] = fsm.Code(number)
		}
		return true
	})
	if len(out) < 30 {
		t.Fatalf("read %d codes of refusals: this test is wrong", len(out))
	}
	return out
}
