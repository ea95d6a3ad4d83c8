package kafka

import (
	"fmt"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// Config is what the client face can be told. Zero fields take the defaults of DefaultConfig where one is needed.
type Config struct {
	// MaxProduceFrame is the largest Produce request in bytes; MaxFrame the largest of any other kind. Longer ones
	// end the connection before anything is allocated.
	MaxProduceFrame, MaxFrame int
	// RequestBytes bounds the request bytes that all connections together hold. Readers wait beyond it: the
	// clients' sockets fill up (I13). As much again is for the elements of requests that have many, while these are run
	// and answered.
	RequestBytes int64
	// ResponseBytes bounds the fetched bytes held for clients that are slow to read. Fetches wait beyond it.
	ResponseBytes int64
	// FetchBytes bounds the records of one Fetch answer, whatever the client asks for. A larger first batch goes alone.
	FetchBytes int
	// MaxInFlight is how many requests of one connection wait for their answer; beyond it the reader stops.
	MaxInFlight int
	// MaxConnections and MaxConnectionsPerIP: connections beyond them are closed at once. 0 for the second: no limit.
	MaxConnections, MaxConnectionsPerIP int
	// ProduceQuota and FetchQuota are the bytes a second that each client id may send in Produce requests to this node, and
	// take in Fetch answers from it, unless the metadata says otherwise for it. 0: no limit.
	ProduceQuota, FetchQuota int64
	// IdleTimeout ends a connection that sends nothing and waits for nothing.
	IdleTimeout time.Duration
	// FrameTimeout is how long the next megabyte of a frame that has begun may take to arrive.
	FrameTimeout time.Duration
	// WriteTimeout is how long an answer may take to leave, plus what 32 KiB/s need.
	WriteTimeout time.Duration
	// LeaderWait is how long Produce and Fetch wait for a promotion that is going on here, and Metadata for a leader
	// of a range that just lost its own, so that a failover costs clients no back-off.
	LeaderWait time.Duration
	// AdminTimeout bounds changes of metadata whose request names no shorter time, and the creation of topics on first use.
	AdminTimeout time.Duration
	// MaxTimeout caps the timeouts that clients ask for.
	MaxTimeout time.Duration

	// TLS makes every listener a TLS one; nil for plaintext.
	TLS *TLS

	// AutoCreate lets Metadata create the topics it is asked for.
	AutoCreate bool
	// DefaultRanges and DefaultReplicas are used where a client leaves the number to the broker.
	DefaultRanges   int32
	DefaultReplicas int16
}

// DefaultConfig returns the shipped defaults.
func DefaultConfig() Config {
	return Config{
		MaxProduceFrame:     100 << 20,
		MaxFrame:            4 << 20,
		RequestBytes:        128 << 20,
		ResponseBytes:       64 << 20,
		FetchBytes:          8 << 20,
		MaxInFlight:         64,
		MaxConnections:      4096,
		MaxConnectionsPerIP: 0,
		IdleTimeout:         10 * time.Minute,
		FrameTimeout:        30 * time.Second,
		WriteTimeout:        30 * time.Second,
		LeaderWait:          time.Second,
		AdminTimeout:        15 * time.Second,
		MaxTimeout:          5 * time.Minute,
		AutoCreate:          true,
		DefaultRanges:       1,
		DefaultReplicas:     3,
	}
}

// Validate refuses values that are out of range or do not fit one another.
func (c Config) Validate() error {
	switch {
	case c.MaxFrame < 1<<10 || c.MaxFrame > 64<<20:
		return fmt.Errorf("kafka: MaxFrame %d: want 1 KiB to 64 MiB", c.MaxFrame)
	case c.MaxProduceFrame < c.MaxFrame || c.MaxProduceFrame > 1<<30:
		return fmt.Errorf("kafka: MaxProduceFrame %d: want MaxFrame (%d) to 1 GiB", c.MaxProduceFrame, c.MaxFrame)
	case c.RequestBytes < int64(c.MaxProduceFrame):
		return fmt.Errorf("kafka: RequestBytes %d: want at least MaxProduceFrame (%d), or the largest request never fits", c.RequestBytes, c.MaxProduceFrame)
	case c.FetchBytes < 1<<10 || c.ResponseBytes < int64(c.FetchBytes):
		return fmt.Errorf("kafka: FetchBytes %d, ResponseBytes %d: want 1 KiB or more, and the second not below the first", c.FetchBytes, c.ResponseBytes)
	case c.MaxInFlight < 1 || c.MaxConnections < 1 || c.MaxConnectionsPerIP < 0:
		return fmt.Errorf("kafka: MaxInFlight %d, MaxConnections %d, MaxConnectionsPerIP %d: want at least 1, 1, 0", c.MaxInFlight, c.MaxConnections, c.MaxConnectionsPerIP)
	case c.ProduceQuota < 0 || c.FetchQuota < 0 || c.ProduceQuota > fsm.MaxQuota || c.FetchQuota > fsm.MaxQuota:
		return fmt.Errorf("kafka: ProduceQuota %d, FetchQuota %d: want 0 for no limit, or up to %d bytes a second", c.ProduceQuota, c.FetchQuota, int64(fsm.MaxQuota))
	case c.IdleTimeout <= 0 || c.FrameTimeout <= 0 || c.WriteTimeout <= 0 || c.AdminTimeout <= 0 || c.MaxTimeout <= 0 || c.LeaderWait < 0:
		return fmt.Errorf("kafka: timeouts must be above zero")
	case c.DefaultRanges < 1 || c.DefaultReplicas < 1:
		return fmt.Errorf("kafka: DefaultRanges %d, DefaultReplicas %d: want at least 1", c.DefaultRanges, c.DefaultReplicas)
	}
	return nil
}
