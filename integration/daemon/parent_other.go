//go:build unix && !linux

package daemon

import "syscall"

// dieWithParent: only Linux can do it. A test process that dies without its cleanups leaves the server behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
