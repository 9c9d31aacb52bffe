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

// reapGroup hears of the end of what was left of the group. It fell to process 1 when its parents ended; in a container that is
// us, and what nobody hears of keeps its number for ever. A process that a signal does not end at once is not waited for.
func reapGroup(cmd *exec.Cmd) {
	reap := func(options int) error {
		for {
			if _, err := syscall.Wait4(-cmd.Process.Pid, nil, options, nil); !errors.Is(err, syscall.EINTR) {
				return err
			}
		}
	}
	if reap(syscall.WNOHANG) != nil { // nothing is left, or it is not ours
		return
	}
	go func() {
		for reap(0) == nil { // until there is none
		}
	}()
}
