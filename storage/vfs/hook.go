package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
)

// OpKind is the verb of an Op.
type OpKind uint8

// The verbs that a Hook sees. OpRead and OpOpen change nothing and bear no number.
const (
	OpRead OpKind = iota + 1
	OpOpen
	OpCreate
	OpWrite
	OpTruncate
	OpSync
	OpSyncData
	OpRename
	OpRemove
	OpMkdir
	OpSyncDir
	OpLink
	OpWriteOut
	OpSyncFS
)

var opNames = [...]string{
	OpRead: "read", OpOpen: "open", OpCreate: "create", OpWrite: "write", OpTruncate: "truncate", OpSync: "sync",
	OpSyncData: "syncdata", OpRename: "rename", OpRemove: "remove", OpMkdir: "mkdir", OpSyncDir: "syncdir",
	OpLink: "link", OpWriteOut: "writeout", OpSyncFS: "syncfs",
}

// String is the verb in lower case.
func (k OpKind) String() string {
	if int(k) < len(opNames) && opNames[k] != "" {
		return opNames[k]
	}
	return "unknown"
}

// Changes reports whether the verb changes the disk, and so bears a number.
func (k OpKind) Changes() bool { return k > OpOpen }

// IsSync reports whether the verb makes something durable.
func (k OpKind) IsSync() bool {
	return k == OpSync || k == OpSyncData || k == OpSyncDir || k == OpSyncFS
}

// Op is one call that is about to be made.
type Op struct {
	// N counts the changing calls on one FS from 1; 0 for OpRead and OpOpen.
	N    uint64
	Kind OpKind
	// Name is the path of the file or directory; of a file, the one by which it was opened; of OpSyncFS, the one by which
	// the Syncer was.
	Name string
	// To is the new path of OpRename and OpLink.
	To string
	// Off is the place of a read or write, or the new length of OpTruncate, in bytes.
	Off int64
	// Len is the number of bytes of a read or write.
	Len int
}

// String describes the call for traces: "write a/b 0+4096", "rename a b", "truncate a 512".
func (o Op) String() string {
	switch o.Kind {
	case OpRead, OpWrite:
		return fmt.Sprintf("%s %s %d+%d", o.Kind, o.Name, o.Off, o.Len)
	case OpTruncate:
		return fmt.Sprintf("%s %s %d", o.Kind, o.Name, o.Off)
	case OpRename, OpLink:
		return fmt.Sprintf("%s %s %s", o.Kind, o.Name, o.To)
	}
	return fmt.Sprintf("%s %s", o.Kind, o.Name)
}

// Hook is asked before each call, from the goroutine that makes it and outside all locks of the FS, so it may
// block for as long as a disk may hang. It must be safe for many goroutines. Its answer decides:
//
//   - nil: the call is made.
//   - ErrPowerCut: the power fails during the call. See CrashFS.
//   - a *ShortWrite, for OpWrite: its first N bytes are written, then Err is returned.
//   - any other error: the call is not made and returns that error with the path. A sync that fails so leaves the
//     unsynced bytes in doubt: see CrashFS.
type Hook func(Op) error

// ErrPowerCut is the answer of a Hook that ends the power, and of all calls after it.
var ErrPowerCut = errors.New("the power was cut")

// ShortWrite is the answer of a Hook that lets the first N bytes of a write reach the file before Err, as a disk
// does that fills up.
type ShortWrite struct {
	N   int
	Err error
}

// Error implements error.
func (s *ShortWrite) Error() string { return fmt.Sprintf("short write of %d bytes: %v", s.N, s.Err) }

// Unwrap returns Err.
func (s *ShortWrite) Unwrap() error { return s.Err }

// hooks numbers the calls of one FS and asks its hook.
type hooks struct {
	hook atomic.Pointer[Hook]
	n    atomic.Uint64
	dead atomic.Bool
}

// SetHook sets what is asked before each call; nil for nothing. Calls that are already in an earlier hook end there.
func (h *hooks) SetHook(hook Hook) {
	if hook == nil {
		h.hook.Store(nil)
		return
	}
	h.hook.Store(&hook)
}

// Ops returns how many changing calls were made or tried: the range for a sweep over crash points.
func (h *hooks) Ops() uint64 { return h.n.Load() }

// PowerCut makes all calls fail with ErrPowerCut from now on. Files stay as they are: see CrashFS.CrashClone.
func (h *hooks) PowerCut() { h.dead.Store(true) }

// ask numbers op and asks the hook about it. The answer is as the hook gave it.
func (h *hooks) ask(op Op) error {
	if op.Kind.Changes() {
		op.N = h.n.Add(1)
	}
	if h.dead.Load() {
		return ErrPowerCut
	}
	if hook := h.hook.Load(); hook != nil {
		return (*hook)(op)
	}
	return nil
}

// pathError gives err the verb and the path, as package os does.
func pathError(op Op, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: err}
}
