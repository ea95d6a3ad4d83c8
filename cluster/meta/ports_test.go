package meta

import (
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// claims are the port numbers that this process has for as long as it lives. They lie below those that the kernel gives to
// outgoing connections, so that an address is still free when a node starts again.
var claims struct {
	sync.Mutex
	next int
	held []net.Listener
}

// freeAddr is an address on loopback that nobody listens on now, TCP or UDP, and that no other test on this machine is given:
// a claim is a name in Linux's abstract namespace, which goes with the process.
func freeAddr(t *testing.T) string {
	t.Helper()
	claims.Lock()
	defer claims.Unlock()
	for range 5000 {
		claims.next++
		port := strconv.Itoa(15_000 + (os.Getpid()*101+claims.next)%15_000)
		if runtime.GOOS == "linux" {
			claim, err := net.Listen("unix", "@vtop-test-port-"+port)
			if err != nil {
				continue
			}
			claims.held = append(claims.held, claim)
		}
		if addr := net.JoinHostPort("127.0.0.1", port); isFree(addr) {
			return addr
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
