package program

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestForcedStopIsLogged: who finds a process gone sees in its log that somebody forced it, and how much was in flight.
func TestForcedStopIsLogged(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", embeddedFile(port,
		"routes: [{handler: exec, with: {command: [sh, -c, 'touch begun; sleep 60'], dir: "+dir+"}}]"))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
	if p := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "1"); p.code(t) != 0 {
		t.Fatalf("produce: %s", p.stderr.String())
	}
	run.eventually(t, "the handler runs", func() bool { _, err := os.Stat(filepath.Join(dir, "begun")); return err == nil })
	run.signal(t, syscall.SIGTERM)
	run.eventually(t, "draining", func() bool { return strings.Contains(run.stderr.String(), `"state":"draining"`) })
	run.force(t, syscall.SIGINT)
	if code := run.code(t); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	log := run.stderr.String()
	for _, want := range []string{`"event":"forced_stop"`, `"signal":"interrupt"`, `"in_flight":1`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in\n%s", want, log)
		}
	}
}

// TestForcedStopWaitsForNoLog: stderr may be a pipe that nobody reads.
func TestForcedStopWaitsForNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		words := &lastWords{}
		words.speak(os.Interrupt) // nobody has anything to say
		release, said := make(chan struct{}), make(chan os.Signal, 1)
		onForcedStop(context.WithValue(t.Context(), lastWordsKey{}, words), func(s os.Signal) { said <- s; <-release })
		onForcedStop(t.Context(), func(os.Signal) { t.Error("of another command") })
		begin := time.Now()
		words.speak(os.Interrupt)
		if s, d := <-said, time.Since(begin); d != time.Second || s != os.Interrupt {
			t.Errorf("said %v, waited %v", s, d)
		}
		close(release)
	})
}
