package harness

import (
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
)

// claims are the port numbers that this process has for as long as it lives. They lie below those that the kernel gives to
// outgoing connections: a node that is down must find its own free when it starts again.
var claims struct {
	sync.Mutex
	next int
	held []net.Listener
}

// FreeAddr finds an address on loopback that nobody listens on now, and that no other test on this machine is given.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return freeAddr(t, "127.0.0.1")
}

// freeAddr finds a port of host that nobody listens on now, TCP or UDP. Whether it is free is asked on loopback, since
// host may belong to another network namespace. A claim is a name in Linux's abstract namespace, which goes with the process.
func freeAddr(t testing.TB, host string) string {
	t.Helper()
	claims.Lock()
	defer claims.Unlock()
	for range 5000 {
		claims.next++
		port := strconv.Itoa(15_000 + (os.Getpid()*101+claims.next)%15_000)
		claim, err := net.Listen("unix", "@vtop-test-port-"+port)
		if err != nil {
			continue
		}
		claims.held = append(claims.held, claim)
		if isFree(net.JoinHostPort("127.0.0.1", port)) {
			return net.JoinHostPort(host, port)
		}
	}
	t.Fatal("no free port")
	return ""
}

func isFree(addr string) bool {
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	return udp.Close() == nil
}
