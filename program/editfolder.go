package program

import (
	"errors"
	"os"
	"path/filepath"
)

// An editFolder holds a payload while it is edited. Only the user can read it. Nothing removes it when the process is killed, so
// it has a lock that the kernel frees then: by it the next command finds what was left.
type editFolder struct {
	path string
	lock *os.File
}

const (
	editPrefix = "longshore-edit-"
	editLock   = "lock"
)

func newEditFolder() (f editFolder, err error) {
	if f.path, err = os.MkdirTemp("", editPrefix); err != nil {
		return f, err
	}
	f.lock, err = os.OpenFile(filepath.Join(f.path, editLock), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err == nil {
		err = lockFile(f.lock)
	}
	if err != nil {
		return f, errors.Join(err, f.remove())
	}
	return f, nil
}

func (f editFolder) remove() error {
	err := os.RemoveAll(f.path)
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// removeLeftEdits removes the folders of this user whose process is gone. What it cannot look at, it leaves.
func removeLeftEdits() {
	folders, err := filepath.Glob(filepath.Join(os.TempDir(), editPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range folders {
		if info, err := os.Lstat(path); err != nil || !info.IsDir() || !isOurs(info) { // others may write to the folder above it
			continue
		}
		lock, err := os.OpenFile(filepath.Join(path, editLock), os.O_RDWR, 0) // #nosec G304 -- a folder of ours
		if err != nil {
			continue
		}
		if lockFile(lock) == nil {
			_ = os.RemoveAll(path)
		}
		_ = lock.Close()
	}
}
