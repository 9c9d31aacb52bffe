package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// TestOwnMain: a main function that registers a handler and calls Main has longshore's commands with it (testdata/own).
func TestOwnMain(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	own := filepath.Join(dir, "own")
	if out, err := exec.Command("go", "build", "-o", own, "./testdata/own").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	writeFile(t, dir, "c.yaml", embeddedFile(port, "routes: [{handler: append, with: {file: handled}}]"))
	if p := launch(t, dir, "config", "check", "c.yaml"); p.code(t) != 2 ||
		!strings.Contains(p.stderr.String(), `routes[0].handler: is "append", want one of [exec log publish webhook]. `+
			"One of your own is known to the program that registers it") {
		t.Errorf("longshore itself: %s", p.stderr.String())
	}
	if p := launchPath(t, own, dir, "config", "check", "c.yaml"); p.code(t) != 0 {
		t.Errorf("config check: %s", p.stderr.String())
	}
	run := launchPath(t, own, dir, "run", "-c", "c.yaml")
	run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
	if p := launchPath(t, own, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "3"); p.code(t) != 0 {
		t.Fatalf("produce: %s", p.stderr.String())
	}
	run.eventually(t, "three are handled", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "handled"))
		return strings.Count(string(text), "orders.created\n") == 3
	})
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d:\n%s", code, run.stderr.String())
	}
}

// TestOwnRegistry: what a registry does not have cannot be used, exec for example.
func TestOwnRegistry(t *testing.T) {
	r := handlers.NewRegistry()
	err := r.Register("own", func(*handlers.Setup, handlers.Options) (consumer.Handler, error) {
		return func(context.Context, *consumer.Message) error { return nil }, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for handler, want := range map[string]string{"own": "<nil>",
		"exec": `c.yaml:4: consumers.orders.routes[0].handler: is "exec", want one of [own]. One of your own is known to the ` +
			"program that registers it: check it with that"} {
		dir := t.TempDir()
		writeFile(t, dir, "c.yaml", "consumers:\n  orders:\n    source: {nats: {stream: ORDERS, subjects: [a], durable: d}}\n    "+
			"routes: [{handler: "+handler+"}]\n")
		root := newRoot(Parts{Handlers: r})
		root.SetOut(t.Output())
		root.SetArgs([]string{"config", "check", filepath.Join(dir, "c.yaml")})
		if got := fmt.Sprint(root.ExecuteContext(t.Context())); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", handler, got, want)
		}
	}
}
