package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop/transport/adminapi"
)

const (
	// strikeDelay lets the answer leave before the blow falls.
	strikeDelay = 100 * time.Millisecond
	// helperLimit bounds the wait for a helper to say that it is there.
	helperLimit = 5 * time.Second
	// envSuccessor carries the command that the helper becomes; a JSON list.
	envSuccessor = "VTOP_DRILL_SUCCESSOR"
)

// drills strikes this process when vtopctl drill asks. It implements inspect.Drills.
type drills struct {
	// supervisor starts the process again when it has ended; empty if nobody does, and it starts a successor itself.
	supervisor string
	log        hclog.Logger
	striking   atomic.Bool
}

func newDrills(supervised bool, log hclog.Logger) *drills {
	return &drills{supervisor: supervisorOf(supervised, os.Getpid(), os.Getenv), log: log.Named("drill")}
}

// supervisorOf says who starts this process again when it ends: whoever --supervised speaks of; systemd, which tells a
// service the number of its own process; or, for the first process of a container, its runtime. Empty: nobody.
func supervisorOf(supervised bool, pid int, environ func(string) string) string {
	switch {
	case supervised:
		return "its supervisor (--supervised)"
	case environ("SYSTEMD_EXEC_PID") == strconv.Itoa(pid):
		return "systemd"
	case pid == 1:
		return "the container's runtime"
	}
	return ""
}

// ReturnsBy implements inspect.Drills.
func (d *drills) ReturnsBy() string {
	if d.supervisor == "" {
		return "its own successor"
	}
	return d.supervisor
}

// Strike implements inspect.Drills.
func (d *drills) Strike(req adminapi.DrillRequest, wipe func() error) (*adminapi.DrillResult, error) {
	if os.Getpid() == 1 && req.Fault != adminapi.DrillRestart {
		return nil, adminapi.Errorf(adminapi.CodeNotAllowed, "vtopd is process 1 of its container, which the kernel keeps from killing or stopping itself").
			WithHint("run the container with an init, as docker run --init, and vtopd --supervised; restart works as it is")
	}
	if !d.striking.CompareAndSwap(false, true) {
		return nil, adminapi.Errorf(adminapi.CodeConflict, "another blow of a drill is falling on this process")
	}
	if err := d.prepare(req, wipe); err != nil {
		d.striking.Store(false)
		return nil, adminapi.Errorf(adminapi.CodeInternal, "the blow could not be prepared: %v", err)
	}
	return &adminapi.DrillResult{PID: os.Getpid(), InMS: strikeDelay.Milliseconds()}, nil
}

// prepare starts what helps afterwards, and only then the clock of the blow.
func (d *drills) prepare(req adminapi.DrillRequest, wipe func() error) error {
	if req.Fault == adminapi.DrillPause {
		pause := time.Duration(req.PauseMS) * time.Millisecond
		if err := startHelper("pause", pause.String()); err != nil {
			return err
		}
		time.AfterFunc(strikeDelay+pause+time.Second, func() { d.striking.Store(false) })
		return nil
	}
	if d.supervisor == "" {
		if err := startHelper("succeed", "-"); err != nil {
			return err
		}
	}
	time.AfterFunc(strikeDelay, func() {
		if err := d.fall(req.Fault, wipe); err != nil {
			d.log.Error("the blow of a drill did not fall", "fault", req.Fault, "error", err)
			d.striking.Store(false)
		}
	})
	return nil
}

// fall ends the process.
func (d *drills) fall(fault string, wipe func() error) error {
	if fault == adminapi.DrillRestart {
		return syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}
	if err := wipe(); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// startHelper starts this program as a helper in a session of its own, so that no signal to this one's group or terminal
// reaches it, and returns when it is at its post. The helper holds the read end of a pipe that ends when this process does.
func startHelper(job, arg string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	argv, err := json.Marshal(append([]string{exe}, os.Args[1:]...))
	if err != nil {
		return err
	}
	alive, keep, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, helperName, strconv.Itoa(os.Getpid()), job, arg)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{alive}
	cmd.Env = append(os.Environ(), envSuccessor+"="+string(argv))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	post, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	_ = alive.Close()
	if err != nil {
		return errors.Join(err, keep.Close())
	}
	ready := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(post).ReadString('\n')
		ready <- err
		_ = cmd.Wait() // a helper that this process outlives
		_ = keep.Close()
	}()
	select {
	case err := <-ready:
		if err != nil {
			return fmt.Errorf("helper: %w", err)
		}
		return nil
	case <-time.After(helperLimit):
		_ = cmd.Process.Kill()
		return fmt.Errorf("helper was not at its post within %s", helperLimit)
	}
}

const helperName = "drill-helper"

// helperCommand is what startHelper starts; it is no command for people.
func helperCommand() *cobra.Command {
	return &cobra.Command{
		Use: helperName, Hidden: true, Args: cobra.ExactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error {
			signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			parent, err := os.FindProcess(os.Getppid()) // a handle: a number that is given away again is not mistaken for it
			if err != nil {
				return err
			}
			if args[0] != strconv.Itoa(parent.Pid) {
				return fmt.Errorf("helper of process %s, whose parent is %d: it is gone", args[0], parent.Pid)
			}
			alive := os.NewFile(3, "alive")
			gone := make(chan struct{})
			go func() {
				_, _ = io.Copy(io.Discard, alive)
				close(gone)
			}()
			fmt.Println("ready")
			switch args[1] {
			case "pause":
				return helpPause(parent, args[2], gone)
			case "succeed":
				<-gone
				return succeed(parent.Pid)
			}
			return fmt.Errorf("%w: helper for %q", errUsage, args[1])
		},
	}
}

// helpPause stops the parent and has it go on, so that nothing that is late can leave it stopped.
func helpPause(parent *os.Process, text string, gone <-chan struct{}) error {
	pause, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	time.Sleep(strikeDelay)
	if err := parent.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	select {
	case <-gone:
	case <-time.After(pause):
	}
	return parent.Signal(syscall.SIGCONT)
}

// succeed becomes the command that the parent was. The parent's files are closed by now, its locks with them; it may still
// be on the process table.
func succeed(pid int) error {
	var argv []string
	if err := json.Unmarshal([]byte(os.Getenv(envSuccessor)), &argv); err != nil || len(argv) == 0 {
		return fmt.Errorf("%w: %s: %w", errUsage, envSuccessor, err)
	}
	for range 50 {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			break
		}
		time.Sleep(10 * time.Millisecond) // one whose parent does not wait for it stays for ever
	}
	if err := os.Unsetenv(envSuccessor); err != nil {
		return err
	}
	signal.Reset()
	if err := syscall.Dup2(2, 1); err != nil { // standard output was the pipe to the parent
		return err
	}
	syscall.CloseOnExec(3)
	return syscall.Exec(argv[0], argv, os.Environ())
}
