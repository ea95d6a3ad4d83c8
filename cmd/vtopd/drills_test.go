package main

import (
	"os"
	"testing"
)

// Who starts the process again decides whether a drill has it start a successor: two of them would fight for one disk.
func TestSupervisorOf(t *testing.T) {
	for name, c := range map[string]struct {
		said      bool
		pid       int
		env, want string
	}{
		"nobody":                {pid: 77},
		"said so":               {said: true, pid: 77, want: "its supervisor (--supervised)"},
		"systemd's own process": {pid: 77, env: "77", want: "systemd"},
		"a child of a service has its variable, too": {pid: 77, env: "70"},
		"first process of a container":               {pid: 1, want: "the container's runtime"},
	} {
		got := supervisorOf(c.said, c.pid, func(k string) string {
			if k != "SYSTEMD_EXEC_PID" {
				t.Fatalf("asked for %s", k)
			}
			return c.env
		})
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestHelper_RefusesAnUnknownJob(t *testing.T) {
	t.Setenv(envSuccessor, "")
	if err := succeed(os.Getpid()); err == nil {
		t.Fatal("a helper without a command became one")
	}
}
