package drill

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// Admin is what a drill asks of the cluster. Every call may be made by many goroutines at once, goes to whichever node
// answers, and ends with ctx; but Drill goes to the node that it names. Errors of nodes are *adminapi.Error.
type Admin interface {
	Status(ctx context.Context) (*adminapi.Status, error)
	Nodes(ctx context.Context) ([]adminapi.Node, error)
	CreateTopic(ctx context.Context, req adminapi.CreateTopic) (*adminapi.TopicDetail, error)
	DeleteTopic(ctx context.Context, name string) error
	Leases(ctx context.Context, topic string) ([]adminapi.Lease, error)
	Lease(ctx context.Context, topic string, n int32) (*adminapi.LeaseDetail, error)
	TransferLease(ctx context.Context, topic string, n int32, to string) (*adminapi.LeaseDetail, error)
	SafeToStop(ctx context.Context, node string) (*adminapi.SafeToStop, error)
	Drill(ctx context.Context, node adminapi.Node, req adminapi.DrillRequest) (*adminapi.DrillResult, error)
	SubmitRepairs(ctx context.Context, req adminapi.RepairRequest) ([]adminapi.Repair, error)
	Repair(ctx context.Context, id uint64) (*adminapi.Repair, error)
	CancelRepair(ctx context.Context, id uint64) (*adminapi.Repair, error)
	Seal(ctx context.Context, topic string, n int32, req adminapi.SealRequest) (*adminapi.SealResult, error)
	Scrub(ctx context.Context, req adminapi.ScrubRequest, found func(adminapi.ScrubVerdict) error) (*adminapi.ScrubSummary, error)
}

// Progress is told how a drill gets on, by many goroutines at once.
type Progress interface {
	// Tell says something that happened.
	Tell(text string)
	// Tick comes about once a second while the load runs.
	Tick(now Snapshot)
}

// Snapshot is a drill at one moment.
type Snapshot struct {
	Elapsed, Duration time.Duration
	// Acked in the last second, and their P99MS; -1 without any.
	Acked int
	P99MS float64
	Total int64
	Blows int
	// Phase says what is being done.
	Phase string
	// Leases say who leads how many ranges, as "n1:2 n3:1".
	Leases string
}

// Config says what a drill does. Zero values take the defaults beside them.
type Config struct {
	// Kind is one of Kinds.
	Kind string
	// Topic to work on; empty: one of its own, deleted in the end unless Keep, or a check failed.
	Topic string
	Keep  bool
	// Duration (2 min) is how long blows may begin, Interval (10 s) the least time from one to the next.
	Duration, Interval time.Duration
	// Pause (5 s) is how long a node is paused.
	Pause time.Duration
	// Patience (2 min) is how long the cluster may take to be whole again, or safe for the next blow.
	Patience time.Duration
	// AtOnce (1) is how many nodes are struck at once.
	AtOnce int
	// Ranges (3) and Replicas (3, or fewer where there are fewer nodes) of a topic of its own.
	Ranges, Replicas int
	// PerSecond (500) records of Size (256) bytes are written.
	PerSecond, Size int
	// Bootstrap are Kafka addresses; empty: those that the nodes advertise. Client are further options, as for TLS.
	Bootstrap []string
	Client    []kgo.Opt
	// Progress may be nil.
	Progress Progress
}

// maxRecords of one drill: all are remembered.
const maxRecords = 2_000_000

// Check fills in defaults and says what makes no sense.
func (c *Config) Check() error {
	def(&c.Duration, 2*time.Minute)
	def(&c.Interval, 10*time.Second)
	def(&c.Pause, 5*time.Second)
	def(&c.Patience, 2*time.Minute)
	def(&c.AtOnce, 1)
	def(&c.Ranges, 3)
	def(&c.PerSecond, 500)
	def(&c.Size, 256)
	switch {
	case !slices.Contains(Kinds(), c.Kind):
		return fmt.Errorf("there is no drill %q: want one of %v", c.Kind, Kinds())
	case c.Duration < 0 || c.Interval < 0 || c.Patience < 0:
		return fmt.Errorf("duration %s, interval %s, patience %s: want times above 0", c.Duration, c.Interval, c.Patience)
	case c.Pause < time.Millisecond || c.Pause > adminapi.MaxDrillPause:
		return fmt.Errorf("pause of %s: want up to %s", c.Pause, adminapi.MaxDrillPause)
	case c.AtOnce < 1:
		return fmt.Errorf("%d faults at once: want 1 or more", c.AtOnce)
	case c.Ranges < 1 || c.Ranges > 100 || c.Replicas < 0:
		return fmt.Errorf("%d ranges of %d replicas: want 1 to 100 ranges", c.Ranges, c.Replicas)
	case c.Size < MinPayload || c.Size > 1<<20:
		return fmt.Errorf("records of %d bytes: want %d to %d", c.Size, MinPayload, 1<<20)
	case c.PerSecond < 1:
		return fmt.Errorf("%d records a second: want 1 or more", c.PerSecond)
	case c.Duration.Seconds()*float64(c.PerSecond) > maxRecords:
		return fmt.Errorf("%s of %d records a second are more than the %d that a drill remembers: take a shorter time or a lower rate", c.Duration, c.PerSecond, maxRecords)
	}
	return nil
}

func def[T comparable](v *T, other T) {
	var zero T
	if *v == zero {
		*v = other
	}
}
