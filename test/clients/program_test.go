//go:build cluster

package clients

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// command is one line to a program.
type command struct {
	ID         int    `json:"id"`
	Op         string `json:"op"`
	Of         int    `json:"of,omitempty"`
	Topic      string `json:"topic,omitempty"`
	Ranges     int    `json:"ranges,omitempty"`
	Replicas   int    `json:"replicas,omitempty"`
	First      int    `json:"first,omitempty"`
	Count      int    `json:"count,omitempty"`
	Codec      string `json:"codec,omitempty"`
	Idempotent bool   `json:"idempotent,omitempty"`
	PerSecond  int    `json:"per_second,omitempty"`
	Group      string `json:"group,omitempty"`
	Instance   string `json:"instance,omitempty"`
	Protocol   string `json:"protocol,omitempty"`
}

// event is one line from a program.
type event struct {
	ID    int `json:"id"`
	Hello *struct {
		Client  string `json:"client"`
		Version string `json:"version"`
	} `json:"hello"`
	Records     []record `json:"records"`
	Acked       int      `json:"acked"`
	Warn        string   `json:"warn"`
	Done        bool     `json:"done"`
	Error       string   `json:"error"`
	Unsupported string   `json:"unsupported"`
}

// record is what an application got: [range, offset, "value"].
type record struct {
	r      int32
	offset int64
	value  string
}

// UnmarshalJSON reads [range, offset, "value"].
func (r *record) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&r.r, &r.offset, &r.value})
}

// unsupported is the error of an operation that a library doesn't have.
type unsupported string

func (u unsupported) Error() string { return string(u) }

// process is a running program.
type process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{}

	mu     sync.Mutex
	hello  string // version; empty until the program said hello
	ops    map[int]*operation
	said   []string // the last lines of standard error
	notify chan struct{}
	killed bool
}

// operation is a command that was sent.
type operation struct {
	p  *process
	id int
	// guarded by p.mu
	records []record
	warned  []string
	end     *event
	stopped bool // the driver asked for the end
}

// startProgram starts a program and waits until it said hello.
func startProgram(t testing.TB, c *client, seeds []string) (*process, error) {
	t.Helper()
	argv := append(append([]string{}, c.argv...), strings.Join(seeds, ","))
	p := &process{name: c.name, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{}), ops: map[int]*operation{}, notify: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), c.env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	said, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(p.kill)
	go p.read(out, said)
	return p, p.until(time.Minute, "hello", func() (bool, error) { return p.hello != "", nil })
}

func (p *process) read(out, said io.Reader) {
	var wg sync.WaitGroup
	said = p.kept(said)
	wg.Go(func() {
		for s := bufio.NewScanner(said); s.Scan(); {
			p.mu.Lock()
			p.said = append(p.said[max(0, len(p.said)-20):], s.Text())
			p.mu.Unlock()
		}
	})
	s := bufio.NewScanner(out)
	for s.Buffer(nil, 16<<20); s.Scan(); {
		var e event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			e = event{Warn: fmt.Sprintf("a line that is no event: %q: %v", s.Text(), err)}
		}
		p.take(e)
	}
	wg.Wait()
	_ = p.cmd.Wait()
	close(p.ended)
	p.take(event{})
}

// kept writes standard error to a file of VTOP_PROGRAM_LOGS, a directory, as it is read; to nowhere without it.
func (p *process) kept(said io.Reader) io.Reader {
	dir := os.Getenv("VTOP_PROGRAM_LOGS")
	if dir == "" {
		return said
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.log", strings.ReplaceAll(p.name, " ", "_"), p.cmd.Process.Pid)))
	if err != nil {
		return said
	}
	return io.TeeReader(said, f)
}

func (p *process) take(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Hello != nil {
		p.hello = e.Hello.Version
	}
	if op := p.ops[e.ID]; op != nil {
		op.records = append(op.records, e.Records...)
		if e.Warn != "" {
			op.warned = append(op.warned[max(0, len(op.warned)-20):], e.Warn)
		}
		if e.Done {
			op.end = &e
		}
	}
	close(p.notify)
	p.notify = make(chan struct{})
}

// until waits until done, called under p.mu, says so or gives an error, at every event of the program.
func (p *process) until(limit time.Duration, what string, done func() (bool, error)) error {
	deadline := time.After(limit)
	for {
		p.mu.Lock()
		ok, err := done()
		notify, said, killed := p.notify, strings.Join(p.said, "\n"), p.killed
		p.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-notify:
		case <-p.ended:
			p.mu.Lock()
			ok, err := done()
			p.mu.Unlock()
			if ok || err != nil {
				return err
			}
			return fmt.Errorf("the program ended (killed: %v) before %s; it said: %s", killed, what, said)
		case <-deadline:
			return fmt.Errorf("%s: not within %s; standard error: %s", what, limit, said)
		}
	}
}

var nextID = struct {
	sync.Mutex
	n int
}{}

// send begins an operation.
func (p *process) send(cmd command) (*operation, error) {
	nextID.Lock()
	nextID.n++
	cmd.ID = nextID.n
	nextID.Unlock()
	op := &operation{p: p, id: cmd.ID}
	p.mu.Lock()
	p.ops[op.id] = op
	p.mu.Unlock()
	return op, p.write(cmd)
}

func (p *process) write(cmd command) error {
	b, err := json.Marshal(cmd)
	if err != nil {
		return err
	}
	_, err = p.in.Write(append(b, '\n'))
	return err
}

// call sends an operation and waits for its end.
func (p *process) call(cmd command, limit time.Duration) (*operation, error) {
	op, err := p.send(cmd)
	if err != nil {
		return nil, err
	}
	return op, op.wait(limit)
}

// kill ends the program and all that it started with SIGKILL.
func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// quit ends the program in order.
func (p *process) quit() error {
	_ = p.in.Close()
	select {
	case <-p.ended:
		return nil
	case <-time.After(60 * time.Second):
		p.kill()
		return errors.New("the program did not end within a minute of its last command")
	}
}

// stop asks the operation to end in order.
func (o *operation) stop() error {
	o.p.mu.Lock()
	o.stopped = true
	o.p.mu.Unlock()
	return o.p.write(command{Op: "stop", Of: o.id})
}

// wait waits for the end; its error is what reached the application, or unsupported.
func (o *operation) wait(limit time.Duration) error {
	return o.p.until(limit, "the end of the operation", func() (bool, error) { return o.end != nil, o.failedLocked() })
}

func (o *operation) failedLocked() error {
	switch {
	case o.end == nil:
		return nil
	case o.end.Unsupported != "":
		return unsupported(o.end.Unsupported)
	case o.end.Error != "":
		return fmt.Errorf("reached the application: %s", o.end.Error)
	}
	return nil
}

// finish stops the operation and waits for its end.
func (o *operation) finish(limit time.Duration) error {
	if err := o.stop(); err != nil {
		return err
	}
	return o.wait(limit)
}

// acked is what the program counted as acknowledged; after the end.
func (o *operation) acked() int {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	if o.end == nil {
		return 0
	}
	return o.end.Acked
}

// got are the records so far.
func (o *operation) got() []record {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	return o.records[:len(o.records):len(o.records)]
}

// untilRecords waits until done is content with the records so far.
func (o *operation) untilRecords(limit time.Duration, what string, done func([]record) bool) error {
	return o.p.until(limit, what, func() (bool, error) {
		if done(o.records) {
			return true, nil
		}
		if err := o.failedLocked(); err != nil {
			return false, err
		}
		if o.end != nil {
			return false, fmt.Errorf("the operation ended by itself before %s", what)
		}
		return false, nil
	})
}

// warnings are the last ones, for messages.
func (o *operation) warnings() string {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	return strings.Join(o.warned, "; ")
}
