package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command that is called with words it does not take says which ones it does.
func TestCommands_TooManyWordsNameWhatIsWanted(t *testing.T) {
	var look func(*cobra.Command)
	checked := 0
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			look(sub)
		}
		if cmd.Args == nil || cmd.HasSubCommands() {
			return
		}
		err := cmd.Args(cmd, strings.Fields("too many words for any command"))
		if err == nil {
			return // takes any number
		}
		checked++
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), "want "+cmd.UseLine()) || !strings.Contains(err.Error(), "; try: vtopctl ") {
			t.Errorf("%s: %v", cmd.CommandPath(), err)
		}
	}
	look(rootCommand())
	if checked < 20 {
		t.Errorf("%d commands looked at", checked)
	}
}
