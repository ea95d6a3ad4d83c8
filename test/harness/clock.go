package harness

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// TryStepClock makes the time of day that a running node is told differ from the machine's by the given time, at once and until
// the process ends or the clock is stepped again. Its monotonic clock goes on, as it does when a machine's clock is set. The
// error says why this machine can't.
//
// Processes ask the vDSO for the time, code that the kernel maps into each of them, and each has a copy of its own as soon as
// it is written to. The start of that code is made to jump into a function next to it that Go doesn't use, and there stands
// one that asks the kernel and adds the step.
func (n *Node) TryStepClock(by time.Duration) error {
	if err := stepClock(n.PID(), by); err != nil {
		return fmt.Errorf("clock of %s: %w", n.Name, err)
	}
	return nil
}

// steppedTime, for amd64, behind which stand the seconds that are added:
//
//	mov  eax, 228         ; clock_gettime(edi, rsi)
//	syscall
//	test edi, edi         ; the time of day?
//	jne  out
//	mov  rcx, [rip+6]     ; the step, behind the padding
//	add  [rsi], rcx
//	out: ret
var steppedTime = []byte{
	0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 0x0a, 0x48, 0x8b, 0x0d, 6, 0, 0, 0, 0x48, 0x01, 0x0e, 0xc3, 0x90, 0x90,
}

const jumpSize = 5

func stepClock(pid int, by time.Duration) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("no code to step the clock of a process on %s", runtime.GOARCH)
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	clock, room, err := vdso(pid, mem)
	if err != nil {
		return err
	}
	step := binary.LittleEndian.AppendUint64(nil, uint64(int64(by/time.Second)))
	code, jump := append(append([]byte{}, steppedTime...), step...), []byte{0xe9}
	jump = binary.LittleEndian.AppendUint32(jump, uint32(int32(room-(clock+jumpSize))))
	if _, err := mem.WriteAt(code, room); err != nil {
		return fmt.Errorf("its vDSO can't be written to: %w", err)
	}
	have := make([]byte, jumpSize)
	if _, err := mem.ReadAt(have, clock); err != nil || bytes.Equal(have, jump) {
		return err
	}
	return whileStopped(pid, clock, func() error {
		_, err := mem.WriteAt(jump, clock)
		return err
	})
}

// vdso finds the code that tells the time, and a function beside it that may be written over.
func vdso(pid int, mem *os.File) (clock, room int64, err error) {
	base, image, err := vdsoImage(pid, mem)
	if err != nil {
		return 0, 0, err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, 0, fmt.Errorf("its vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, 0, fmt.Errorf("its vDSO: %w", err)
	}
	for _, s := range symbols {
		switch {
		case s.Name == "__vdso_clock_gettime" && s.Size > jumpSize:
			clock = base + int64(s.Value)
		case s.Name == "__vdso_gettimeofday" && s.Size >= uint64(len(steppedTime)+8):
			room = base + int64(s.Value)
		}
	}
	if clock == 0 || room == 0 || room%8 != 0 {
		return 0, 0, errors.New("its vDSO has not the functions that were looked for, or no room in them")
	}
	return clock, room, nil
}

func vdsoImage(pid int, mem *os.File) (base int64, image []byte, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		if !strings.HasSuffix(lines.Text(), "[vdso]") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x", &from, &to); err != nil {
			return 0, nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		image = make([]byte, to-from)
		if _, err := mem.ReadAt(image, from); err != nil {
			return 0, nil, fmt.Errorf("its vDSO: %w", err)
		}
		return from, image, nil
	}
	return 0, nil, errors.New("it has no vDSO")
}

// whileStopped stops a process while no thread is inside the bytes that are to be a jump, has it changed, and lets it go on.
func whileStopped(pid int, at int64, change func() error) error {
	for l := NewLimit(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		free, err := stoppedOutside(pid, at)
		if free && err == nil {
			err = change()
		}
		if err := errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)); err != nil || free {
			return err
		}
		if l.Over() {
			return errors.New("it never stopped outside the code that tells the time")
		}
	}
}

func stoppedOutside(pid int, at int64) (bool, error) {
	for l := NewLimit(10 * time.Second); !stopped(pid); time.Sleep(time.Millisecond) {
		if l.Over() {
			return false, nil
		}
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil || len(threads) == 0 {
		return false, fmt.Errorf("no threads of %d (%v)", pid, err)
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH):
			continue // a thread that ended
		case err != nil:
			return false, err
		}
		fields := strings.Fields(string(b))
		pc, err := strconv.ParseInt(fields[len(fields)-1], 0, 64)
		if err != nil || pc > at && pc < at+jumpSize {
			return false, nil // "running", or where it must not be
		}
	}
	return true, nil
}
