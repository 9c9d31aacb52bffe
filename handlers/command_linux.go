package handlers

import "syscall"

// dieWithParent has the kernel kill the command, not its children, when this process is gone without having done so (SIGKILL, a
// crash).
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
