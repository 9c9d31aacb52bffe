//go:build unix

package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// shell makes an Exec that runs a script.
func shell(t *testing.T, script string, change func(*handlers.ExecConfig)) *handlers.Exec {
	t.Helper()
	c := handlers.ExecConfig{Command: []string{"sh", "-c", script}}
	if change != nil {
		change(&c)
	}
	e, err := handlers.NewExec(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Exit codes decide about the message, seen from the engine.
func TestExecExitCodes(t *testing.T) {
	for _, c := range []struct {
		script string
		codes  []int
		want   string
	}{
		{"exit 0", nil, "acked"},
		{"exit 1", nil, "retry"},
		{"exit 65", nil, "permanent"},
		{"exit 75", nil, "retry"},
		{"exit 127", nil, "retry"},
		{"exit 65", []int{3}, "retry"},
		{"exit 3", []int{3}, "permanent"},
		{"exit 65", []int{}, "retry"},
		{"kill -9 $$", nil, "retry"},
	} {
		t.Run(c.script, func(t *testing.T) {
			e := shell(t, c.script, func(cfg *handlers.ExecConfig) { cfg.PermanentCodes = c.codes })
			o := handled(t, e.Handle, broker.Outgoing{Topic: "in", Value: []byte("x")})
			got := "acked"
			if o.permanent() {
				got = "permanent"
			} else if _, ok := o.retry(); ok {
				got = "retry"
			}
			if got != c.want {
				t.Errorf("%s with %v: %s, want %s (%+v)", c.script, c.codes, got, c.want, o.failed)
			}
		})
	}
}

// A program with a relative path is the one from Dir on: what is found at the start is what runs.
func TestExecRelativeProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"app/in-app", "in-cwd"} {
		if err := errors.Join(os.MkdirAll("app", 0o700), os.WriteFile(name, []byte("#!/bin/sh\nexit 0\n"), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"app", "./app/../app", mustAbs(t, "app")} {
		e, err := handlers.NewExec(handlers.ExecConfig{Command: []string{"./in-app"}, Dir: dir})
		if err != nil {
			t.Errorf("dir %s: %v", dir, err)
			continue
		}
		if err := e.Handle(t.Context(), message("orders", "x")); err != nil {
			t.Errorf("dir %s: %v", dir, err)
		}
	}
	for _, name := range []string{"./in-cwd", "app/in-app"} { // they are no programs from app on
		if e, err := handlers.NewExec(handlers.ExecConfig{Command: []string{name}, Dir: "app"}); err == nil {
			t.Errorf("%s was accepted, and a run says %v", name, e.Handle(t.Context(), message("orders", "x")))
		}
	}
	e, err := handlers.NewExec(handlers.ExecConfig{Command: []string{"./in-cwd"}, Dir: "."})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Handle(t.Context(), message("orders", "x")); err != nil {
		t.Error(err)
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// The command gets the payload, what is known about the message, and of the environment only what it is to have.
func TestExecInput(t *testing.T) {
	t.Setenv("NOT_FOR_CHILDREN", "secret")
	t.Setenv("FOR_CHILDREN", "yes")
	file := filepath.Join(t.TempDir(), "seen")
	e := shell(t, `cat > "$OUT"; env | grep -E '^(LONGSHORE|NOT_FOR|FOR_|PATH=)' | sort >> "$OUT"`, func(c *handlers.ExecConfig) {
		c.Env = map[string]broker.Secret{"OUT": broker.NewSecret(file)}
		c.InheritEnv = []string{"PATH", "FOR_CHILDREN", "NOT_SET"}
	})
	m := message("orders.ü", "payload\x00\n")
	m.Key = []byte("a b\nLONGSHORE_ATTEMPT=9\x00")
	if err := e.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := "payload\x00\nFOR_CHILDREN=yes\nLONGSHORE_ATTEMPT=1\nLONGSHORE_ID=orders.%C3%BC/3/42//1700000000000000001\n" +
		"LONGSHORE_KEY=a%20b%0ALONGSHORE_ATTEMPT=9%00\nLONGSHORE_OFFSET=42\nLONGSHORE_PARTITION=3\n" +
		"LONGSHORE_TOPIC=orders.%C3%BC\nPATH=" + os.Getenv("PATH") + "\n"
	if string(got) != want {
		t.Errorf("the command saw\n%q\nwant\n%q", got, want)
	}
}

// 1 MB on standard input that nobody reads: neither a hang nor an error, and the exit code decides.
func TestExecInputNobodyReads(t *testing.T) {
	m := message("in", strings.Repeat("x", 1<<20))
	if err := shell(t, "exit 0", nil).Handle(t.Context(), m); err != nil {
		t.Errorf("exit 0: %v", err)
	}
	if err := shell(t, "exec <&-; exit 65", nil).Handle(t.Context(), m); !consumer.IsPermanent(err) {
		t.Errorf("exit 65: %v", err)
	}
}

// What it writes is bounded in memory and in the error, and escaped.
func TestExecOutput(t *testing.T) {
	err := shell(t, `head -c 3000000 /dev/zero | tr '\0' x; printf '\033[31mred\n\377 end' >&2; exit 1`, nil).Handle(t.Context(),
		message("in", ""))
	if err == nil {
		t.Fatal("no error")
	}
	text := err.Error()
	if len(text) > 700 || !strings.Contains(text, "exit status 1") || !strings.Contains(text, `\x1b[31mred\n`) ||
		!strings.HasSuffix(text, ` end"`) {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

// alive says whether the process whose number stands in file is there.
func alive(t *testing.T, file string) bool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && strings.Contains(string(stat), ") Z ") {
		return false // a zombie that nobody has collected
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// gone waits until it is not.
func gone(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(patience); alive(t, file); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("the process of %s is still there", filepath.Base(file))
			return
		}
	}
}

// begun waits until a command has written its number to file.
func begun(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil && len(b) > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody wrote %s", filepath.Base(file))
		}
	}
}

// Its time is over: the message is retried, and the error says how long it had. ErrTimeout is what its class is told by.
func TestExecTimeout(t *testing.T) {
	e := shell(t, "sleep 300", func(c *handlers.ExecConfig) { c.Timeout = 50 * time.Millisecond })
	err := e.Handle(t.Context(), message("in", "x"))
	if !errors.Is(err, consumer.ErrTimeout) || consumer.IsPermanent(err) || !strings.Contains(err.Error(), "after 50ms") {
		t.Errorf("error %v", err)
	}
}

// A command that ignores SIGTERM, and its child that does too, are killed after the grace; the message is retried.
func TestExecIgnoresSIGTERM(t *testing.T) {
	dir := t.TempDir()
	e := shell(t, `trap '' TERM; sh -c 'trap "" TERM; echo $$ > child; while :; do sleep 1; done' & echo $$ > parent; while :; do `+
		`sleep 1; done`, func(c *handlers.ExecConfig) {
		c.Dir, c.KillAfter = dir, 200*time.Millisecond
	})
	parent, child := filepath.Join(dir, "parent"), filepath.Join(dir, "child")
	if err := shutDown(t, e, parent, child); !errors.Is(err, consumer.ErrShutdown) || consumer.IsPermanent(err) {
		t.Errorf("error %v", err)
	}
	gone(t, parent)
	gone(t, child)
}

// One that heeds it ends at once, and even exit code 0 or a permanent one does not count then.
func TestExecHeedsSIGTERM(t *testing.T) {
	for _, code := range []int{0, 65} {
		dir := t.TempDir()
		e := shell(t, fmt.Sprintf(`trap 'exit %d' TERM; echo $$ > parent; while :; do sleep 0.05; done`, code),
			func(c *handlers.ExecConfig) {
				c.Dir, c.KillAfter = dir, time.Hour
			})
		if err := shutDown(t, e, filepath.Join(dir, "parent")); !errors.Is(err, consumer.ErrShutdown) || consumer.IsPermanent(err) {
			t.Errorf("exit code %d: error %v", code, err)
		}
	}
}

// shutDown ends the context of a call when the command has written all files, and returns what the call says.
func shutDown(t *testing.T, e *handlers.Exec, files ...string) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Handle(ctx, message("in", "x")) }()
	for _, f := range files {
		begun(t, f)
	}
	cancel(consumer.ErrShutdown)
	return <-done
}

// What a command leaves behind is killed, and does not hold the worker though it holds the output: not for as long either as a
// command may take that was told to end.
func TestExecLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	e := shell(t, `sh -c 'echo $$ > child; while :; do sleep 1; done' & while [ ! -s child ]; do sleep 0.01; done; exit 0`,
		func(c *handlers.ExecConfig) {
			c.Dir, c.KillAfter = dir, time.Hour
		})
	done := make(chan error, 1)
	go func() { done <- e.Handle(t.Context(), message("in", strings.Repeat("x", 1<<20))) }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("error %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the worker is held")
	}
	gone(t, filepath.Join(dir, "child"))
}

func TestExecRefuses(t *testing.T) {
	_, err := handlers.Default().Build("exec", nil, handlers.NewOptions(map[string]any{
		"command": []any{"no-such-program-here"}, "dir": "/no/such/dir", "env": map[string]any{"LONGSHORE_KEY": "x", "": "y"},
		"inherit_env": []any{"A=B"}, "timeout": "-1s", "kill_after": "-1s", "permanent_codes": []any{0, 256, 65},
	}))
	var all handlers.OptionErrors
	if !errors.As(err, &all) {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, e := range all {
		got[e.Path] = true
	}
	for _, path := range []string{"command[0]", "dir", "env.LONGSHORE_KEY", "env.", "inherit_env[0]", "timeout", "kill_after",
		"permanent_codes[0]", "permanent_codes[1]"} {
		if !got[path] {
			t.Errorf("%s is not told: %v", path, err)
		}
	}
	if len(got) != 9 {
		t.Errorf("told: %v", err)
	}
	if _, err := handlers.NewExec(handlers.ExecConfig{}); err == nil || !strings.Contains(err.Error(), "command: is required") {
		t.Errorf("no command: %v", err)
	}
}

// A stop waits for as long as the slowest command may take to end.
func TestExecNeedsGrace(t *testing.T) {
	var s handlers.Setup
	for _, after := range []string{"2s", "9s", "3s"} {
		if _, err := handlers.Default().Build("exec", &s,
			handlers.NewOptions(map[string]any{"command": []any{"sh"}, "kill_after": after})); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Grace(); got != 10*time.Second {
		t.Errorf("%v, want the longest kill_after and a second", got)
	}
}

func ExampleExec() {
	e, err := handlers.NewExec(handlers.ExecConfig{Command: []string{"sh", "-c",
		`echo "cannot read $LONGSHORE_TOPIC: $(cat)" >&2; exit 65`}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = e.Handle(context.Background(), &consumer.Message{Topic: "orders", Value: []byte("<xml/>")})
	fmt.Println("dead-lettered at once:", consumer.IsPermanent(err))
	_, output, _ := strings.Cut(err.Error(), "exit status")
	fmt.Println("exit status" + output)
	// Output:
	// dead-lettered at once: true
	// exit status 65: output "cannot read orders: <xml/>"
}

// TestExecRefusesAnEmptyDir: where a variable is empty, the command would run in another folder than was meant.
func TestExecRefusesAnEmptyDir(t *testing.T) {
	_, err := handlers.Default().Build("exec", nil, handlers.NewOptions(map[string]any{"command": []any{"true"},
		"dir": handlers.Text("")}))
	var all handlers.OptionErrors
	if !errors.As(err, &all) || len(all) != 1 || all[0].Error() != "dir: is empty" {
		t.Errorf("error %v, want one, dir: is empty", err)
	}
}

// The longest time there is to end is no time that is over at once.
func TestExecIsNeverKilled(t *testing.T) {
	dir := t.TempDir()
	e := shell(t, `trap 'echo goodbye; exit 3' TERM; echo $$ > parent; while :; do sleep 0.05; done`, func(c *handlers.ExecConfig) {
		c.Dir, c.KillAfter = dir, math.MaxInt64
	})
	if err := shutDown(t, e, filepath.Join(dir, "parent")); !errors.Is(err, consumer.ErrShutdown) ||
		!strings.Contains(err.Error(), "goodbye") {
		t.Errorf("error %v, want what it said when it was told to end", err)
	}
	var s handlers.Setup
	if _, err := handlers.Default().Build("exec", &s, handlers.NewOptions(map[string]any{
		"command": []any{"sh"}, "kill_after": time.Duration(math.MaxInt64).String(),
	})); err != nil || s.Grace() != math.MaxInt64 {
		t.Errorf("a grace of %v, %v", s.Grace(), err)
	}
}
