package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

// TestDamagedStoreIsTold: what the embedded server says of its store is in the log; of a store that is well nothing is.
func TestDamagedStoreIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	said := func() string {
		t.Helper()
		var out lockedBuffer
		e, err := startNATS(t.Context(), zerolog.New(&out), dir, server.RANDOM_PORT)
		if err != nil {
			t.Fatal(err)
		}
		defer e.stop()
		if err := e.ensureStreams(t.Context(), []stream{{"S", []string{"s"}}}); err != nil {
			t.Fatal(err)
		}
		js, end, err := e.jetStream()
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		if _, err := js.Publish(t.Context(), "s", []byte("canary")); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for range 2 {
		if got := said(); got != "" {
			t.Errorf("of a store that is well: %s", got)
		}
	}
	sums, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "meta.sum"))
	if err != nil || len(sums) != 1 {
		t.Fatal(sums, err)
	}
	if err := os.WriteFile(sums[0], []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := said(); !strings.Contains(got, `{"level":"warn","event":"embedded_nats_log","message":"Stream metafile `) ||
		!strings.Contains(got, "checksums do not match") {
		t.Errorf("of one that is damaged: %q", got)
	}
}

// TestServerLogIsBounded: what the server repeats does not fill the disk, and an error is one.
func TestServerLogIsBounded(t *testing.T) {
	var out strings.Builder
	synctest.Test(t, func(*testing.T) {
		l := newServerLog(zerolog.New(&out))
		for i := range 1000 {
			l.Errorf("write error %d\n", i)
		}
		time.Sleep(2 * time.Second)
		l.Warnf("%s", "later")
		l.Noticef("nothing")
	})
	if n := strings.Count(out.String(), "\n"); n < 2 || n > 11 ||
		!strings.HasPrefix(out.String(), `{"level":"error","event":"embedded_nats_log","message":"write error 0"}`) ||
		!strings.HasSuffix(out.String(), `{"level":"warn","event":"embedded_nats_log","message":"later"}`+"\n") {
		t.Errorf("%d lines: %s", n, out.String())
	}
}

// TestSlowRecovery: a store may take as long as it takes. That is told once, and a signal is heeded meanwhile.
func TestSlowRecovery(t *testing.T) {
	for _, c := range []struct {
		name                string
		ready, fatal, ended time.Duration // from the start; 0: never
		want                error
		told                int
	}{
		{"fast", time.Second, 0, 0, nil, 0},
		{"slow", 3 * time.Minute, 0, 0, nil, 1},
		{"a signal", 0, 0, time.Minute, context.Canceled, 1},
		{"it cannot", 0, time.Second, 0, errors.New("no room"), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began, told, fatal := time.Now(), 0, make(chan string, 1)
			past := func(d time.Duration) bool { return d > 0 && time.Since(began) >= d }
			ready := func() bool {
				time.Sleep(50 * time.Millisecond)
				if past(c.ended) {
					cancel()
				}
				if past(c.fatal) {
					select {
					case fatal <- "no room":
					default:
					}
				}
				return past(c.ready)
			}
			err := awaitServer(ctx, ready, fatal, func() { told++ })
			if fmt.Sprint(err) != fmt.Sprint(c.want) || told != c.told {
				t.Errorf("%s: %v, told %d times", c.name, err, told)
			}
		})
	}
}
