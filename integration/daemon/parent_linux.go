package daemon

import "syscall"

// dieWithParent lets the kernel end the server when the test process dies without its cleanups.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
