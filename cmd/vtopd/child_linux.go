package main

import "syscall"

// childAttributes puts a child of vtopd dev into its own process group, so that Ctrl-C reaches the supervisor
// alone, and has the kernel stop the child should the supervisor be killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
