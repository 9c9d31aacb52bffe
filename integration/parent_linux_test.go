package integration

import "syscall"

// dieWithParent lets the kernel end a consumer when the test process dies without its cleanups.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
