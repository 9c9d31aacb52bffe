//go:build unix && !linux

package handlers

import "syscall"

// dieWithParent has nothing to set: only Linux has such a thing everywhere.
func dieWithParent(*syscall.SysProcAttr) {}
