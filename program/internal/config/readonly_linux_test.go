package config

import (
	"os"
	"strings"
	"testing"
)

// TestOnReadOnly holds what statfs says against the list of mounts, where one is read-only.
func TestOnReadOnly(t *testing.T) {
	if onReadOnly(t.TempDir()) {
		t.Error("a folder that was just made is on a read-only mount")
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[3], "ro,") {
			continue
		}
		if info, err := os.Stat(f[1]); err == nil && info.IsDir() {
			if !onReadOnly(f[1]) {
				t.Errorf("%s is read-only, and not seen to be", f[1])
			}
			return
		}
	}
	t.Skip("nothing is mounted read-only here")
}
