//go:build cluster

package clients

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// The same scenarios against franz-go's fake broker, in this process; a new one for each, since one that lost a node
// may be without a controller for ever.
func TestClients_Kfake(t *testing.T) {
	matrix(t, "kfake", make([]target, lanes), func(t *testing.T, _ target) target {
		c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1), kfake.ListenFn(listenHangingUp))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return fake{c, c.ListenAddrs()}
	})
}

// fake is a kfake cluster: nodes are taken out and put back instead of killed.
type fake struct {
	c     *kfake.Cluster
	addrs []string // of nodes 0, 1, 2
}

func (f fake) seeds() []string { return f.c.ListenAddrs() }
func (f fake) replicas() int   { return 3 }

func (f fake) move(topic string) error {
	return f.c.MoveTopicPartition(topic, 0, (f.c.LeaderFor(topic, 0)+1)%3)
}

func (f fake) killHolder(topic string) (func() error, error) { return f.kill(f.c.LeaderFor(topic, 0)) }

func (f fake) killCoordinator(group string) (func() error, error) {
	return f.kill(f.c.CoordinatorFor(group))
}

// kill takes out a node, with its connections; kfake gives its ranges and groups to others at once. It comes back where it was.
func (f fake) kill(node int32) (func() error, error) {
	_, port, err := net.SplitHostPort(f.addrs[node])
	if err != nil {
		return nil, err
	}
	p, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	if err := f.c.RemoveNode(node); err != nil {
		return nil, err
	}
	return func() error {
		if _, _, err := f.c.AddNode(node, p); err != nil {
			return fmt.Errorf("put back node %d at port %d: %w", node, p, err)
		}
		return nil
	}, nil
}

// hangingUp is a listener whose connections end with it. kfake keeps those of a node that is taken out, and answers on them for ever
// that it leads and coordinates nothing: to a client that knows nodes by their id, the one that was put back would seem to say so.
type hangingUp struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func listenHangingUp(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	return &hangingUp{Listener: l}, err
}

func (l *hangingUp) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, c)
	}
	return c, err
}

func (l *hangingUp) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	return err
}
