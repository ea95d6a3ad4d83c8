// Package program is the client's side of the line protocol that the driver of the client matrix speaks (see
// test/clients/doc.go): it reads commands from standard input, one JSON object a line, runs each in a goroutine, and
// writes events to standard output.
package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Command is one line from the driver.
type Command struct {
	ID         int    `json:"id"`
	Op         string `json:"op"`
	Of         int    `json:"of"`
	Topic      string `json:"topic"`
	Ranges     int    `json:"ranges"`
	Replicas   int    `json:"replicas"`
	First      int    `json:"first"`
	Count      int    `json:"count"`
	Codec      string `json:"codec"`
	Idempotent bool   `json:"idempotent"`
	PerSecond  int    `json:"per_second"`
	Group      string `json:"group"`
	Instance   string `json:"instance"`
	Protocol   string `json:"protocol"`
}

// Record is a record as an application got it: range, offset and value.
type Record [3]any

// Read makes a Record.
func Read(r int32, offset int64, value []byte) Record { return Record{r, offset, string(value)} }

type event struct {
	ID          int      `json:"id"`
	Hello       *Hello   `json:"hello,omitempty"`
	Records     []Record `json:"records,omitempty"`
	Acked       int      `json:"acked,omitempty"`
	Warn        string   `json:"warn,omitempty"`
	Done        bool     `json:"done,omitempty"`
	Error       string   `json:"error,omitempty"`
	Unsupported string   `json:"unsupported,omitempty"`
}

// Hello names the client and its version.
type Hello struct {
	Client  string `json:"client"`
	Version string `json:"version"`
}

// Unsupported is the error of an operation that the client's library doesn't have.
type Unsupported string

func (u Unsupported) Error() string { return string(u) }

// Out is where an operation reports what reaches the application.
type Out struct {
	id int
	w  *writer
}

// Records reports records that the application got.
func (o *Out) Records(r ...Record) {
	if len(r) > 0 {
		o.w.write(event{ID: o.id, Records: r})
	}
}

// Warn reports what a library tells for information only.
func (o *Out) Warn(format string, args ...any) {
	o.w.write(event{ID: o.id, Warn: fmt.Sprintf(format, args...)})
}

// Client is one library. Produce, Consume and Group run until their work is done or ctx ends, which is the driver's word
// to end in order: flush, commit, leave.
type Client interface {
	CreateTopic(ctx context.Context, cmd Command) error
	Produce(ctx context.Context, cmd Command, out *Out) (acked int, err error)
	Consume(ctx context.Context, cmd Command, out *Out) error
	Group(ctx context.Context, cmd Command, out *Out) error
}

type writer struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (w *writer) write(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.enc.Encode(e)
}

// Main serves the driver until standard input ends. The first argument names the bootstrap servers.
func Main(hello Hello, open func(seeds []string) Client) {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: PROGRAM HOST:PORT,...")
		os.Exit(2)
	}
	client := open(strings.Split(os.Args[1], ","))
	w := &writer{enc: json.NewEncoder(os.Stdout)}
	w.write(event{Hello: &hello})
	var wg sync.WaitGroup
	stops := map[int]context.CancelFunc{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var cmd Command
		if err := json.Unmarshal(lines.Bytes(), &cmd); err != nil {
			fmt.Fprintf(os.Stderr, "a line that is no command: %v\n", err)
			os.Exit(2)
		}
		if cmd.Op == "stop" {
			if stop := stops[cmd.Of]; stop != nil {
				stop()
			}
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		stops[cmd.ID] = cancel
		wg.Go(func() { run(ctx, client, cmd, w) })
	}
	for _, stop := range stops {
		stop()
	}
	wg.Wait()
}

func run(ctx context.Context, client Client, cmd Command, w *writer) {
	out := &Out{id: cmd.ID, w: w}
	done := event{ID: cmd.ID, Done: true}
	var err error
	switch cmd.Op {
	case "create_topic":
		err = client.CreateTopic(ctx, cmd)
	case "produce":
		done.Acked, err = client.Produce(ctx, cmd, out)
	case "consume":
		err = client.Consume(ctx, cmd, out)
	case "group":
		err = client.Group(ctx, cmd, out)
	default:
		err = fmt.Errorf("no such operation: %q", cmd.Op)
	}
	var missing Unsupported
	if errors.As(err, &missing) {
		done.Unsupported = string(missing)
	} else if err != nil {
		done.Error = err.Error()
	}
	w.write(done)
}

// Value is the value of record id.
func Value(id int) []byte { return fmt.Appendf(nil, "%08d-%s", id, strings.Repeat("vtop", 16)) }

// Values calls send for every record of a produce command, at its pace, until its count is reached or ctx ends, and
// returns how many it called for.
func Values(ctx context.Context, cmd Command, send func(value []byte)) int {
	started := time.Now()
	for n := 0; ; n++ {
		if cmd.Count > 0 && n == cmd.Count || ctx.Err() != nil {
			return n
		}
		if cmd.PerSecond > 0 {
			due := started.Add(time.Duration(n) * time.Second / time.Duration(cmd.PerSecond))
			select {
			case <-ctx.Done():
				return n
			case <-time.After(time.Until(due)):
			}
		}
		send(Value(cmd.First + n))
	}
}
