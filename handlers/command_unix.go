//go:build unix

package handlers

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup has cmd start a process group, so that what it starts can be signalled with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

func terminateGroup(cmd *exec.Cmd) error {
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// killGroup ends what is left of the group. The number of a group that has members is not given to a new process; that of one
// that has just become empty is not either before all others were (the kernel counts up).
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
