//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package program

import (
	"os"
	"syscall"
)

// lockFile takes the lock of a file, which ends with the process. An error: somebody has it.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// isOurs says whether a file belongs to the user.
func isOurs(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}
