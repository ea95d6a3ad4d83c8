package harness

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Leftovers names what this process has made and not taken away again: directories, mounts, loop devices, network namespaces,
// links, and processes. After a test that passed, and was cleaned up, there is nothing.
func Leftovers() []string {
	pid := os.Getpid()
	disks := filepath.Join(os.TempDir(), fmt.Sprintf("vtop-disk-%d-", pid))
	var left []string
	for _, pattern := range []string{
		disks + "*", filepath.Join(os.TempDir(), fmt.Sprintf("vtop-test-%d-*", pid)), fmt.Sprintf("/var/run/netns/v%dn*", pid),
	} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	if mounts, err := os.ReadFile("/proc/mounts"); err == nil {
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, disks) {
				left = append(left, "mount "+strings.TrimSpace(line))
			}
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, loop := range loops {
		if file, err := os.ReadFile(loop); err == nil && strings.HasPrefix(string(file), disks) {
			left = append(left, loop+" "+strings.TrimSpace(string(file)))
		}
	}
	links, _ := net.Interfaces()
	for _, l := range links {
		if m := leftLink.FindStringSubmatch(l.Name); m != nil && m[1] == fmt.Sprint(pid) {
			left = append(left, "link "+l.Name)
		}
	}
	return append(left, children(pid)...)
}

// children are the processes that a process has started and that have not ended.
func children(pid int) []string {
	var out []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		name, rest, ok := strings.Cut(string(b), ") ")
		if fields := strings.Fields(rest); ok && len(fields) > 1 && fields[1] == fmt.Sprint(pid) {
			out = append(out, "process "+name+")")
		}
	}
	return out
}
