package handlers

import (
	"errors"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// pipeGrace is how long a command's output is waited for when it has ended, or was killed: what it left behind may hold it.
const pipeGrace = 500 * time.Millisecond

// errOver says that the process is about to exit.
var errOver = errors.New("no command is started any more: the process is about to exit")

// commands are those that Exec handlers of this process are running, for KillCommands.
var commands struct {
	gate    sync.RWMutex // read-held while one is started, so that KillCommands sees it or it is refused
	over    bool         // under gate
	running sync.Map     // *exec.Cmd
}

// KillCommands sends SIGKILL to all commands that Exec handlers of this process are running, each with its process group, and
// lets no further one start. It does not wait for their end. Call it just before os.Exit, where handlers may still be running;
// program.Main does. Safe for concurrent use.
func KillCommands() {
	commands.gate.Lock()
	commands.over = true
	commands.gate.Unlock()
	commands.running.Range(func(cmd, _ any) bool {
		killGroup(cmd.(*exec.Cmd))
		return true
	})
}

// runCommand starts cmd in a process group of its own, waits for its end, and leaves nothing of the group behind. When cmd's
// context ends the group gets SIGTERM, and SIGKILL after killAfter.
func runCommand(cmd *exec.Cmd, killAfter time.Duration) error {
	ownGroup(cmd)
	cmd.WaitDelay = pipeGrace // from its end, if that comes first
	var kill *time.Timer
	cmd.Cancel = func() error {
		cmd.WaitDelay = later(killAfter, pipeGrace) // from now; Cancel's caller reads it after this
		kill = time.AfterFunc(killAfter, func() { killGroup(cmd) })
		return terminateGroup(cmd)
	}
	// The kernel sends the signal of dieWithParent when the thread that started the command ends. A thread that is ours until then
	// cannot be ended by a goroutine of others that returns while locked to it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := startCommand(cmd); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	defer commands.running.Delete(cmd)
	err := cmd.Wait()
	if kill != nil {
		kill.Stop()
	}
	killGroup(cmd)
	reapGroup(cmd)
	return err
}

// later is d and by, or the longest there is: who wants no kill says that.
func later(d, by time.Duration) time.Duration { return d + min(by, math.MaxInt64-d) }

func startCommand(cmd *exec.Cmd) error {
	commands.gate.RLock()
	defer commands.gate.RUnlock()
	if commands.over {
		return errOver
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	commands.running.Store(cmd, nil)
	return nil
}
