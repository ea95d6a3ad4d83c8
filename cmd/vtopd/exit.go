package main

// Exit codes of vtopd, documented in docs/operations.md. A supervisor restarts the process on all but exitUsage.
const (
	exitOK        = 0
	exitFailed    = 1 // could not start or go on; the last log line says why
	exitUsage     = 2 // flags, environment or file are wrong; a restart changes nothing
	exitDiskStall = 5 // the disk watchdog ended the process: the disk hung past --disk-stall-limit
)
