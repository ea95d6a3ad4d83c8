// Package lines makes a program of the line protocol from command-line tools: values go into the standard input of a
// producer, and records come as lines from the standard output of a consumer.
package lines

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"

	"github.com/vtop-log/vtop/test/clients/programs/go/program"
)

// Tool is a command-line client. The first four give a command line.
type Tool struct {
	CreateLine, ProduceLine, ConsumeLine func(cmd program.Command) []string
	GroupLine                            func(cmd program.Command) ([]string, error)
	// Parse reads a line of a consumer.
	Parse func(line string) (program.Record, bool)
	// Failed tells a line of standard error that says that something failed from one that only informs.
	Failed func(line string) bool
}

// CreateTopic takes the exit code for the answer.
func (t Tool) CreateTopic(_ context.Context, cmd program.Command) error {
	line := t.CreateLine(cmd)
	if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Produce takes the records for acknowledged if the tool ended well and called none failed.
func (t Tool) Produce(ctx context.Context, cmd program.Command, out *program.Out) (int, error) {
	p, err := t.start(t.ProduceLine(cmd), out)
	if err != nil {
		return 0, err
	}
	go func() { _, _ = io.Copy(io.Discard, p.out) }()
	var wrong error
	sent := program.Values(ctx, cmd, func(value []byte) {
		if _, err := p.in.Write(append(value, '\n')); err != nil && wrong == nil {
			wrong = err
		}
	})
	_ = p.in.Close()
	if err := errors.Join(wrong, p.wait(false)); err != nil {
		return 0, err
	}
	return sent, nil
}

// Consume ends after cmd.Count records, or when ctx ends.
func (t Tool) Consume(ctx context.Context, cmd program.Command, out *program.Out) error {
	return t.read(ctx, t.ConsumeLine(cmd), cmd.Count, out)
}

// Group runs a member until ctx ends.
func (t Tool) Group(ctx context.Context, cmd program.Command, out *program.Out) error {
	line, err := t.GroupLine(cmd)
	if err != nil {
		return err
	}
	return t.read(ctx, line, 0, out)
}

func (t Tool) read(ctx context.Context, line []string, count int, out *program.Out) error {
	p, err := t.start(line, out)
	if err != nil {
		return err
	}
	// SIGTERM is how one asks these tools to commit, leave and end.
	stop := context.AfterFunc(ctx, p.term)
	defer stop()
	n := 0
	for s := bufio.NewScanner(p.out); s.Scan(); {
		if r, ok := t.Parse(s.Text()); ok {
			out.Records(r)
			n++
		}
		if count > 0 && n == count {
			p.term()
		}
	}
	return p.wait(ctx.Err() != nil || count > 0 && n >= count)
}

type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.Reader
	done sync.WaitGroup

	mu     sync.Mutex
	failed error
}

func (t Tool) start(line []string, out *program.Out) (*process, error) {
	p := &process{cmd: exec.Command(line[0], line[1:]...)}
	// What kills this program kills the tool too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	said, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.done.Go(func() {
		for s := bufio.NewScanner(said); s.Scan(); {
			if !t.Failed(s.Text()) {
				out.Warn("%s", s.Text())
				continue
			}
			p.mu.Lock()
			p.failed = errors.Join(p.failed, errors.New(s.Text()))
			p.mu.Unlock()
		}
	})
	return p, nil
}

func (p *process) term() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// wait waits for the end of the tool; asked means that it was told to end, whatever code it gives then.
func (p *process) wait(asked bool) error {
	p.done.Wait()
	err := p.cmd.Wait()
	if asked {
		err = nil
	}
	return errors.Join(p.failed, err)
}
