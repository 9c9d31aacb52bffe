package natsbroker_test

import (
	"os"
	"syscall"
	"testing"
)

// storeDir is where a server stores: in memory where there is room, for a server waits for its disk, and leases run out meanwhile
// where others use it, too.
func storeDir(t testing.TB) string {
	t.Helper()
	const memory, room = "/dev/shm", 1 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "natsbroker")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
