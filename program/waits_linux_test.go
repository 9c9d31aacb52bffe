package program

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestSignalEndsWhatOnlyReads: a command that waits for a pipe to have something ends at the first signal. It heard the signal
// and read on, until a second one.
func TestSignalEndsWhatOnlyReads(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]int{"config check pipe": 1, "run -c pipe": 0, "lag -c pipe": 1, "produce --file pipe": 1} {
		dir := t.TempDir()
		pipe := filepath.Join(dir, "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		p := launch(t, dir, strings.Fields(args)...)
		var w *os.File
		p.eventually(t, "it reads", func() (reads bool) {
			f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0) // an error: nobody reads
			w = f
			return err == nil
		})
		p.signal(t, syscall.SIGTERM)
		if code := p.code(t); code != want || want != 0 && p.stderr.String() != "longshore: stopped\n" {
			t.Errorf("%s: exit code %d, want %d; stderr: %s", args, code, want, p.stderr.String())
		}
		_ = w.Close()
	}
}

// TestSignalIsNo: who is asked whether to delete, and interrupts, has not agreed.
func TestSignalIsNo(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	stop()
	if agreed(ctx, r, io.Discard, "Delete all? ") {
		t.Error("it was taken for a yes")
	}
}

// A full disk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestUnwrittenListIsOneError: a list that is too long to be aligned as a whole cannot be written, and that is said once.
func TestUnwrittenListIsOneError(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", slices.Repeat([]string{"bad"}, tableRows+1)...)
		root := newRoot(Parts{}.withDefaults())
		root.SetOut(fullDisk{})
		root.SetErr(io.Discard)
		root.SetArgs([]string{"dlq", "list", "-c", f.file})
		err := root.ExecuteContext(t.Context())
		if !errors.Is(err, syscall.ENOSPC) || strings.Count(err.Error(), syscall.ENOSPC.Error()) != 1 {
			t.Errorf("dlq list: %v", err)
		}
	})
}

// TestUnwrittenIsAnError: a command whose output cannot be written says so, also where it prints a line at a time.
func TestUnwrittenIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", embeddedFile("4222", "routes: [{handler: log}]"))
	root := newRoot(Parts{}.withDefaults())
	root.SetOut(fullDisk{})
	root.SetErr(io.Discard)
	root.SetArgs([]string{"config", "check", filepath.Join(dir, "c.yaml")})
	if err := root.ExecuteContext(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("config check: %v", err)
	}
}
