//go:build cluster

package clients

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// disturb does what the feature is about; grown waits until the log has grown by so many records from now on.
type disturb func(x *cell, grown func(n int64) error) error

func moveTwice(x *cell, grown func(int64) error) error {
	for range 2 {
		began := time.Now()
		if err := x.target.move(x.topic); err != nil {
			return err
		}
		moved := time.Since(began)
		if err := grown(200); err != nil {
			return err
		}
		x.t.Logf("moved after %s, 200 records more after %s", moved.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}
	return nil
}

func killHolder(x *cell, grown func(int64) error) error {
	restore, err := x.target.killHolder(x.topic)
	if err != nil {
		return err
	}
	return errors.Join(grown(300), restore(), grown(200))
}

// fault lets the client produce and consume one range, disturbs it, and looks at what stands in the log, and at what the
// consumer got of it.
func fault(do disturb) func(x *cell) error {
	return func(x *cell) error {
		if err := x.makeTopic(1); err != nil {
			return err
		}
		writer, err := x.program()
		if err != nil {
			return err
		}
		reader, err := x.program()
		if err != nil {
			return err
		}
		read, err := reader.send(command{Op: "consume", Topic: x.topic})
		if err != nil {
			return err
		}
		cmd := command{Op: "produce", Topic: x.topic, Idempotent: true, PerSecond: 200}
		write, err := writer.send(cmd)
		if err != nil {
			return err
		}
		idempotent := true
		if err := x.grown(write, 100); errors.As(err, new(unsupported)) {
			cmd.Idempotent, idempotent = false, false
			if write, err = writer.send(cmd); err != nil {
				return err
			}
			err = x.grown(write, 100)
			if err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		if err := do(x, func(n int64) error { return x.grown(write, n) }); err != nil {
			return fmt.Errorf("%w (the producer told: %s)", err, write.warnings())
		}
		if err := write.finish(some); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		return errors.Join(x.checkFault(write.acked(), read, idempotent), writer.quit(), reader.quit())
	}
}

// grown waits until the log has grown by n records from now on, while op runs.
func (x *cell) grown(op *operation, n int64) error {
	from := int64(-1)
	return eventually(some, fmt.Sprintf("%d more records", n), func() error {
		op.p.mu.Lock()
		failed, ended := op.failedLocked(), op.end != nil
		op.p.mu.Unlock()
		if failed != nil {
			return stopPolling{failed}
		}
		if ended {
			return stopPolling{errors.New("the producer ended by itself")}
		}
		ends, err := x.ends()
		if err != nil {
			return err
		}
		if from < 0 {
			from = ends[0]
		}
		if ends[0] < from+n {
			return fmt.Errorf("end offset %d, was %d", ends[0], from)
		}
		return nil
	})
}

// checkFault holds the log against what was acknowledged, and what the consumer got against the log.
func (x *cell) checkFault(acked int, read *operation, idempotent bool) error {
	stored, err := x.stored()
	if err != nil {
		return err
	}
	log := stored[0]
	if err := checkWritten(log, acked, idempotent); err != nil {
		return err
	}
	all := func(got []record) bool { return len(got) >= len(log) }
	if err := read.untilRecords(some, "the consumer has all records", all); err != nil {
		return fmt.Errorf("consume: %d of %d: %w (it told: %s)", len(read.got()), len(log), err, read.warnings())
	}
	if err := read.finish(some); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	for i, r := range read.got() {
		if r.offset != int64(i) || r.value != string(log[i].Value) {
			return fmt.Errorf("consume: record %d came as offset %d, %.9q; the log has %.9q there", i, r.offset, r.value, log[i].Value)
		}
	}
	return nil
}

func checkWritten(log []*kgo.Record, acked int, idempotent bool) error {
	seen := map[int]bool{}
	last := -1
	for _, r := range log {
		id, err := valueID(string(r.Value))
		if err != nil {
			return err
		}
		if idempotent && id != last+1 {
			return fmt.Errorf("offset %d holds record %d after record %d", r.Offset, id, last)
		}
		seen[id], last = true, id
	}
	if idempotent && len(log) != acked {
		return fmt.Errorf("%d records acknowledged, %d in the log", acked, len(log))
	}
	for id := range acked {
		if !seen[id] {
			return fmt.Errorf("record %d was acknowledged and isn't in the log of %d records", id, len(log))
		}
	}
	return nil
}
