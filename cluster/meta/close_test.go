package meta

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
)

// onceWritten calls then when a text is written for the first time, and lets the writer wait for it.
type onceWritten struct {
	text string
	then func()
	once sync.Once
}

func (w *onceWritten) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.text)) {
		w.once.Do(w.then)
	}
	return len(b), nil
}

type closeTold struct {
	net.Listener
	once   sync.Once
	closed chan struct{}
}

func (l *closeTold) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A node may be told to stop while it starts Raft and gossip. Nothing goes on then when Close has returned: Raft would read and write a
// database that is closed, and gossip would tell others that the node lives.
func TestClose_WhileItStarts(t *testing.T) {
	w := newWorld(t, 1, "a")
	w.join, w.gossip = nil, true
	starting := make(chan struct{})
	listener := &closeTold{closed: make(chan struct{})}
	w.tune = func(cfg *Config) {
		listener.Listener, cfg.RaftListener = cfg.RaftListener, listener
		cfg.Log = hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: &onceWritten{text: "initial configuration", then: func() {
			close(starting)
			select {
			case <-listener.closed: // Close has found no server yet, and goes on without
			case <-time.After(time.Second): // Close waits for this
			}
		}}})
	}
	b := w.box("a")
	b.start()
	<-starting
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.meta.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if s := b.meta.server.Load(); s == nil || s.raft.State() != raft.Shutdown {
		t.Errorf("Raft goes on after Close: %+v", s)
	}
	if udp, err := net.ListenPacket("udp", b.gossip); err != nil {
		t.Errorf("gossip goes on after Close: %v", err)
	} else {
		_ = udp.Close()
	}
}

// And it may be told so just before: then neither is started, and Close does not wait for it.
func TestClose_BeforeItStarts(t *testing.T) {
	w := newWorld(t, 1, "a")
	w.join, w.gossip = nil, true
	before, listener := make(chan struct{}), &closeTold{closed: make(chan struct{})}
	w.tune = func(cfg *Config) {
		listener.Listener, cfg.RaftListener = cfg.RaftListener, listener
		write := cfg.SetCluster
		cfg.SetCluster = func(id vtop.ClusterID) error {
			close(before)
			<-listener.closed // Close is past all that it stops
			return write(id)
		}
	}
	b := w.box("a")
	b.start()
	<-before
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.meta.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if s := b.meta.server.Load(); s != nil {
		t.Error("Raft was started after Close")
	}
}
