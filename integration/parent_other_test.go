//go:build unix && !linux

package integration

import "syscall"

// dieWithParent: only Linux can do it.
func dieWithParent() *syscall.SysProcAttr { return nil }
