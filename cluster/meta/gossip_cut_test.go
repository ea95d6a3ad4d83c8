package meta

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/vtop-log/vtop"
)

// gossipNet carries gossip between nodes by name, in a bubble's time. A cut node reaches nobody and hears nobody.
type gossipNet struct {
	mu    sync.Mutex
	nodes map[string]*gossipEnd // by address
	cut   map[*gossipEnd]bool
}

// gossipEnd is one node's end.
type gossipEnd struct {
	net     *gossipNet
	addr    *net.UDPAddr
	packets chan *memberlist.Packet
	streams chan net.Conn
}

func (ws *gossipNet) add(port int) *gossipEnd {
	w := &gossipEnd{net: ws, addr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.nodes[w.addr.String()] = w
	return w
}

func (ws *gossipNet) set(cut bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.nodes {
		ws.cut[w] = cut
	}
}

// to is the other end, nil if there is none or one of the two is cut off.
func (w *gossipEnd) to(addr string) *gossipEnd {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	other := w.net.nodes[addr]
	if other == nil || w.net.cut[w] || w.net.cut[other] {
		return nil
	}
	return other
}

func (w *gossipEnd) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return w.addr.IP, w.addr.Port, nil
}
func (w *gossipEnd) PacketCh() <-chan *memberlist.Packet { return w.packets }
func (w *gossipEnd) StreamCh() <-chan net.Conn           { return w.streams }
func (w *gossipEnd) Shutdown() error                     { return nil }

func (w *gossipEnd) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	if other := w.to(addr); other != nil {
		select {
		case other.packets <- &memberlist.Packet{Buf: append([]byte(nil), b...), From: w.addr, Timestamp: now}:
		default: // lost, as packets are
		}
	}
	return now, nil
}

func (w *gossipEnd) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	late := time.After(timeout)
	if other := w.to(addr); other != nil {
		here, there := net.Pipe()
		select {
		case other.streams <- there:
			return here, nil
		case <-late:
		}
	} else {
		<-late
	}
	return nil, errors.New("no answer")
}

// H3: all nodes are cut off from all others for ten minutes, twenty times as long as gossip remembers the dead and goes on calling them. Nothing is touched afterwards, and all know each
// other again.
func TestGossip_CutLongerThanItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := &gossipNet{nodes: map[string]*gossipEnd{}, cut: map[*gossipEnd]bool{}}
		names := []vtop.NodeName{"a", "b", "c"}
		seeds := map[vtop.NodeName]string{}
		var all []*gossip
		for i, name := range names {
			addr := "127.0.0.1:" + strconv.Itoa(i+1)
			seeds[name] = addr
			g, err := startGossip(gossipConfig{
				cluster: vtop.ClusterID{1}, self: nodeMeta{Name: name, Storage: vtop.StorageID{name[0]}, Incarnation: 1, ServerID: "s", Peer: "127.0.0.1:1"},
				bind: addr, log: hclog.NewNullLogger(), transport: ws.add(i + 1),
			})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, g)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var calling sync.WaitGroup
		for i, g := range all {
			calling.Go(func() {
				g.rejoin(ctx, func() map[vtop.NodeName]string {
					others := map[vtop.NodeName]string{}
					for name, addr := range seeds {
						if name != names[i] {
							others[name] = addr
						}
					}
					return others
				})
			})
		}
		knows := func(want int, within time.Duration) {
			t.Helper()
			time.Sleep(within) // of the bubble
			synctest.Wait()
			for i, g := range all {
				if got := len(g.members()); got != want {
					t.Errorf("%s knows %d nodes, want %d", names[i], got, want)
				}
			}
		}
		knows(3, time.Minute)
		ws.set(true)
		knows(1, 10*time.Minute)
		ws.set(false)
		knows(3, time.Minute)
		cancel()
		calling.Wait()
		for _, g := range all {
			g.close()
		}
		time.Sleep(time.Minute) // what memberlist leaves behind ends by its own time limits
	})
}
