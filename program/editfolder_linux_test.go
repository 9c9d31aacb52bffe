package program

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A payload that was being edited when the process was killed is removed by the next command; one that is being edited stays, and
// so does what is not ours to judge.
func TestKilledEditLeavesNothing(t *testing.T) {
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		if f.kafka {
			t.Skip("the same for both")
		}
		f.bury(t, "orders", "secret payload")
		tmp := t.TempDir()
		if _, err := build(); err != nil { // for all tests, and so not in a folder of this one
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", tmp)
		t.Setenv("VISUAL", "")
		writeFile(t, tmp, "editor", "echo $$ > \""+tmp+"/begun.new\"; mv \""+tmp+"/begun.new\" \""+tmp+"/begun\"; exec sleep 60\n")
		t.Setenv("EDITOR", "sh "+filepath.Join(tmp, "editor"))
		left := func() (payloads int) {
			all, err := filepath.Glob(filepath.Join(tmp, "*", "payload*"))
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		edit := launch(t, tmp, append([]string{"dlq", "edit", f.place(0), "--to", "orders"}, f.flags...)...)
		edit.eventually(t, "an editor", func() bool { _, err := os.Stat(tmp + "/begun"); return err == nil })
		editor, err := strconv.Atoi(strings.TrimSpace(readFile(t, tmp, "begun")))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Kill(editor, syscall.SIGKILL) }()
		other := filepath.Join(tmp, editPrefix+"of-somebody") // without a lock: perhaps just being made
		if err := os.Mkdir(other, 0o700); err != nil {
			t.Fatal(err)
		}
		f.must(t, "list")
		if n := left(); n != 1 {
			t.Fatalf("%d payloads while one is being edited", n)
		}
		edit.signal(t, syscall.SIGKILL)
		_ = syscall.Kill(editor, syscall.SIGKILL)
		edit.code(t)
		for deadline := time.Now().Add(patience); left() > 0; time.Sleep(10 * time.Millisecond) {
			if f.must(t, "list"); time.Now().After(deadline) {
				t.Fatal("the payload of a killed edit is still there")
			}
		}
		if _, err := os.Stat(other); err != nil {
			t.Error(err)
		}
		if out := f.must(t, "list"); strings.Contains(out, "replayed") {
			t.Errorf("the letter was replayed:\n%s", out)
		}
	})
}
