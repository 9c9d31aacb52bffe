//go:build unix

package namedfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/longshoremq/longshore/internal/namedfile"
)

// TestRead: what has no end, gives what it has once, or is no file is an error that names it, and holds nobody up.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	pipe, long, short := filepath.Join(dir, "pipe"), filepath.Join(dir, "long"), filepath.Join(dir, "short")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{long: namedfile.Most + 1, short: namedfile.Most} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, size); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		pipe: "a pipe or a device", "/dev/zero": "a pipe or a device", dir: "is a folder", long: "has more than 4194304 bytes",
		filepath.Join(dir, "none"): "no such file",
	} {
		if _, err := namedfile.Read(name); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if content, err := namedfile.Read(short); err != nil || len(content) != namedfile.Most {
		t.Errorf("%d bytes: %v", len(content), err)
	}
	if _, err := namedfile.Once("/dev/zero", 100); err == nil || err.Error() != "/dev/zero has more than 100 bytes" {
		t.Errorf("/dev/zero: %v", err)
	}
}
