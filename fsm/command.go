package fsm

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// Op is the number of a command on the wire. Numbers are only ever appended, never reused.
type Op uint16

// The commands. The contract of each stands on its struct.
const (
	OpBootstrapCluster    Op = 1
	OpRegisterNode        Op = 2
	OpAdmitPending        Op = 3
	OpUpdateNode          Op = 4
	OpCreateTopic         Op = 5
	OpDeleteTopic         Op = 6
	OpCreateRanges        Op = 7
	OpAlterTopicConfig    Op = 8
	OpGrantLeases         Op = 9
	OpStartEpochs         Op = 10
	OpReleaseLeases       Op = 11
	OpReportFloors        Op = 12
	OpMoveLogStart        Op = 13
	OpRegisterSegment     Op = 14
	OpChangeReplicas      Op = 15
	OpMarkReplicasLost    Op = 16
	OpAllocateProducerIDs Op = 17
	OpSetFeatureLevel     Op = 18
	OpSubmitRepairs       Op = 19
	OpUpdateRepairs       Op = 20
	OpCancelRepairs       Op = 21
	OpSetHeal             Op = 22
	OpRemoveNode          Op = 23
	OpRecoverRange        Op = 24
	OpGrantCoordinators   Op = 25
	OpReleaseCoordinators Op = 26
	OpUpdateGroups        Op = 27
	OpSetPreferred        Op = 28
	OpAlterClientQuotas   Op = 29
)

// commandType is one row of the table of commands.
type commandType struct {
	op    Op
	name  string
	since Level
	// empty makes the message that decode reads.
	empty  func() proto.Message
	decode func(proto.Message) (Command, error)
}

// commands is the one table of commands; it is never written to.
var commands = [...]commandType{
	{OpBootstrapCluster, "BootstrapCluster", 1, empty[fsmpb.BootstrapCluster], with(decodeBootstrapCluster)},
	{OpRegisterNode, "RegisterNode", 1, empty[fsmpb.RegisterNode], with(decodeRegisterNode)},
	{OpAdmitPending, "AdmitPending", 1, empty[fsmpb.AdmitPending], with(decodeAdmitPending)},
	{OpUpdateNode, "UpdateNode", 1, empty[fsmpb.UpdateNode], with(decodeUpdateNode)},
	{OpCreateTopic, "CreateTopic", 1, empty[fsmpb.CreateTopic], with(decodeCreateTopic)},
	{OpDeleteTopic, "DeleteTopic", 1, empty[fsmpb.DeleteTopic], with(decodeDeleteTopic)},
	{OpCreateRanges, "CreateRanges", 1, empty[fsmpb.CreateRanges], with(decodeCreateRanges)},
	{OpAlterTopicConfig, "AlterTopicConfig", 1, empty[fsmpb.AlterTopicConfig], with(decodeAlterTopicConfig)},
	{OpGrantLeases, "GrantLeases", 1, empty[fsmpb.GrantLeases], with(decodeGrantLeases)},
	{OpStartEpochs, "StartEpochs", 1, empty[fsmpb.StartEpochs], with(decodeStartEpochs)},
	{OpReleaseLeases, "ReleaseLeases", 1, empty[fsmpb.ReleaseLeases], with(decodeReleaseLeases)},
	{OpReportFloors, "ReportFloors", 1, empty[fsmpb.ReportFloors], with(decodeReportFloors)},
	{OpMoveLogStart, "MoveLogStart", 1, empty[fsmpb.MoveLogStart], with(decodeMoveLogStart)},
	{OpRegisterSegment, "RegisterSegment", 1, empty[fsmpb.RegisterSegment], with(decodeRegisterSegment)},
	{OpChangeReplicas, "ChangeReplicas", 1, empty[fsmpb.ChangeReplicas], with(decodeChangeReplicas)},
	{OpMarkReplicasLost, "MarkReplicasLost", 1, empty[fsmpb.MarkReplicasLost], with(decodeMarkReplicasLost)},
	{OpAllocateProducerIDs, "AllocateProducerIDs", 1, empty[fsmpb.AllocateProducerIDs], with(decodeAllocateProducerIDs)},
	{OpSetFeatureLevel, "SetFeatureLevel", 1, empty[fsmpb.SetFeatureLevel], with(decodeSetFeatureLevel)},
	{OpSubmitRepairs, "SubmitRepairs", 1, empty[fsmpb.SubmitRepairs], with(decodeSubmitRepairs)},
	{OpUpdateRepairs, "UpdateRepairs", 1, empty[fsmpb.UpdateRepairs], with(decodeUpdateRepairs)},
	{OpCancelRepairs, "CancelRepairs", 1, empty[fsmpb.CancelRepairs], with(decodeCancelRepairs)},
	{OpSetHeal, "SetHeal", 1, empty[fsmpb.SetHeal], with(decodeSetHeal)},
	{OpRemoveNode, "RemoveNode", 1, empty[fsmpb.RemoveNode], with(decodeRemoveNode)},
	{OpRecoverRange, "RecoverRange", 1, empty[fsmpb.RecoverRange], with(decodeRecoverRange)},
	{OpGrantCoordinators, "GrantCoordinators", 1, empty[fsmpb.GrantCoordinators], with(decodeGrantCoordinators)},
	{OpReleaseCoordinators, "ReleaseCoordinators", 1, empty[fsmpb.ReleaseCoordinators], with(decodeReleaseCoordinators)},
	{OpUpdateGroups, "UpdateGroups", 1, empty[fsmpb.UpdateGroups], with(decodeUpdateGroups)},
	{OpSetPreferred, "SetPreferred", 1, empty[fsmpb.SetPreferred], with(decodeSetPreferred)},
	{OpAlterClientQuotas, "AlterClientQuotas", 1, empty[fsmpb.AlterClientQuotas], with(decodeAlterClientQuotas)},
}

func lookup(op Op) (commandType, bool) {
	if op == 0 || int(op) > len(commands) {
		return commandType{}, false
	}
	return commands[op-1], true // the order is a test
}

// String names the command.
func (op Op) String() string {
	if t, ok := lookup(op); ok {
		return t.name
	}
	return fmt.Sprintf("op %d", uint16(op))
}

// Since is the feature level from which the command may be proposed; 0 for an unknown op.
func (op Op) Since() Level {
	t, _ := lookup(op)
	return t.since
}

// Command is one change of the state machine. The implementations are the structs of this package, by pointer or value
// alike only as pointers: &GrantLeases{…}.
type Command interface {
	// Op is the number on the wire.
	Op() Op
	// Check looks at the shape alone: bounds, missing fields. It returns a *Refusal of CodeInvalid or CodeLimit.
	Check() error

	encode() proto.Message
	// apply checks, then changes; a refused command or item has changed nothing. It runs only after Check passed.
	apply(tx *tx) Outcome
}

// The wire form of a command:
//
//	byte 0      format, 1
//	bytes 1-2   op, big endian
//	bytes 3-    the protobuf message of that op (package fsmpb), deterministically marshalled
const (
	commandFormat = 1
	commandHeader = 3
	// MaxCommand is the longest encoded command in bytes.
	MaxCommand = 8 << 20
)

// Encode checks the shape of a command and returns its wire form. The error is a *Refusal.
func Encode(cmd Command) ([]byte, error) {
	if err := cmd.Check(); err != nil {
		return nil, err
	}
	head := make([]byte, commandHeader, 256)
	head[0] = commandFormat
	binary.BigEndian.PutUint16(head[1:], uint16(cmd.Op()))
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(head, cmd.encode())
	if err != nil {
		return nil, refusef(CodeInvalid, "encode %s: %v", cmd.Op(), err)
	}
	if len(b) > MaxCommand {
		return nil, refusef(CodeLimit, "%s of %d bytes, at most %d: propose fewer items at a time", cmd.Op(), len(b), MaxCommand)
	}
	return b, nil
}

// Decode reads what Encode wrote. It refuses an unknown format or op, fields that this build does not know (to
// apply a command without them would be to diverge), and values that do not fit. It does not Check the shape.
// The command does not alias b.
func Decode(b []byte) (Command, error) {
	if len(b) < commandHeader || len(b) > MaxCommand {
		return nil, fmt.Errorf("command of %d bytes: want %d to %d", len(b), commandHeader, MaxCommand)
	}
	if b[0] != commandFormat {
		return nil, fmt.Errorf("command format %d: this build reads format %d", b[0], commandFormat)
	}
	op := Op(binary.BigEndian.Uint16(b[1:]))
	t, ok := lookup(op)
	if !ok {
		return nil, fmt.Errorf("unknown command, op %d: this build knows ops up to %d", op, len(commands))
	}
	m := t.empty()
	if err := unmarshal(b[commandHeader:], m); err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	cmd, err := t.decode(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return cmd, nil
}

// CheckProposal says, before anything is proposed, whether the cluster is able to take the command: its feature level
// and its shape. The error is a *Refusal. A command that some node does not know must never be committed.
func (s *State) CheckProposal(cmd Command) error {
	if r := s.admits(cmd); r != nil {
		return r
	}
	return nil
}

func (s *State) admits(cmd Command) *Refusal {
	op := cmd.Op()
	if s.cluster.ID.IsZero() {
		if op != OpBootstrapCluster {
			return refusef(CodeNotBootstrapped, "%s: the cluster was not born yet", op)
		}
	} else if since := op.Since(); since > s.cluster.Level {
		return refusef(CodeLevel, "%s needs feature level %d, the cluster has %d: upgrade every node, then raise the level",
			op, since, s.cluster.Level)
	}
	return asRefusal(cmd.Check())
}

// Fault is the panic of a node that cannot go on: a committed command that it cannot read, or whose meaning it
// does not know. To skip it would be to diverge from the other nodes.
type Fault struct {
	Index uint64
	Err   error
}

// Error implements error.
func (f *Fault) Error() string {
	return fmt.Sprintf("state machine stopped at index %d: %v; run a build that understands this cluster's feature level", f.Index, f.Err)
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }
