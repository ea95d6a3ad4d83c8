// Package transporttest is what the tests of everything that opens connections share: addresses on loopback, and goroutines that
// have to end with their connections. Only tests import it.
package transporttest

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs a package's tests and fails what left goroutines behind. These may take a minute to end on a busy machine: goleak alone
// looks for half a second. It does not return.
func Main(m *testing.M) { goleak.VerifyTestMain(patiently{m}) }

type patiently struct{ *testing.M }

// Run implements goleak.TestingM.
func (p patiently) Run() int {
	code := p.M.Run()
	for end := time.Now().Add(time.Minute); goleak.Find() != nil && time.Now().Before(end); {
	}
	return code
}

// claims are the port numbers that this process has for as long as it lives. They lie below those that the kernel gives to
// outgoing connections, so that an address is still free when a node that was down starts again.
var claims struct {
	sync.Mutex
	next int
	held []net.Listener
}

// FreeAddr is an address on loopback that nobody listens on now, TCP or UDP, and that no other test on this machine is given.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", FreePort(t))
}

// FreePort is the port of a FreeAddr, for hosts of other network namespaces. On Linux it is claimed by a name in the abstract
// namespace, which goes with the process; elsewhere other processes may be given the same one.
func FreePort(t testing.TB) string {
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
		if isFree(net.JoinHostPort("127.0.0.1", port)) {
			return port
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

// RefusingAddr is an address on loopback that refuses connections until the test ends.
func RefusingAddr(t testing.TB) string {
	t.Helper()
	addr, free, err := Refuse()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(free)
	return addr
}

// Refuse is RefusingAddr without a test at hand: the address refuses until free is called. Its port is bound, so that nobody else
// gets it, and nobody listens.
func Refuse() (addr string, free func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return "", nil, err
	}
	syscall.CloseOnExec(fd)
	free = func() { _ = syscall.Close(fd) }
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		free()
		return "", nil, err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		free()
		return "", nil, err
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port), free, nil
}
