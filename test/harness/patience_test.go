package harness

import (
	"testing"
	"time"
)

func TestLimit_DoesNotRunWhileTheMachineStands(t *testing.T) {
	l := NewLimit(-time.Minute)
	if !l.Over() {
		t.Fatal("a limit that lies behind is not over")
	}
	stood().add(time.Hour)
	if l.Over() {
		t.Error("the machine stood still for an hour, and the limit ran out all the same")
	}
	if StoodStill() < time.Hour {
		t.Error("the standstill is not told")
	}
	if later := NewLimit(-time.Minute); !later.Over() {
		t.Error("a standstill before a limit began makes it longer")
	}
}
