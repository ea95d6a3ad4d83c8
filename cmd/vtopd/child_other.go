//go:build !linux

package main

import "syscall"

// childAttributes puts a child of vtopd dev into its own process group, so that Ctrl-C reaches the supervisor alone.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
