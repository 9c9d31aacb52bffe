package program

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/program/internal/config"
)

// TestConsoleBeginsWithTheEvent: what happened stands before its figures, and once.
func TestConsoleBeginsWithTheEvent(t *testing.T) {
	var out strings.Builder
	log := newLogger(config.Log{Format: "console"}, &out)
	log.Info().Str("consumer", "orders").Str("event", "state").Str("state", "running").Send()
	log.Warn().Str("event", "forced_stop").Int("in_flight", 3).Msg("stopped at once")
	const at = `\d\d:\d\d:\d\d\.\d{3} `
	want := regexp.MustCompile(`^` + at + `INF state consumer=orders state=running\n` + at +
		`WRN forced_stop stopped at once in_flight=3\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("%q", out.String())
	}
}

// TestNothingIsAckedUnwritten: what the log handler could not write, since the disk is full, comes again until it was written.
func TestNothingIsAckedUnwritten(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		t.Run(format, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{})
				produceIn(t, b, "tea")
				dir := t.TempDir()
				writeFile(t, dir, "c.yaml", "log: {format: "+format+"}\nconsumers:\n  orders:\n    source: {memory: {topics: [in], "+
					"group: workers}}\n    routes: [{handler: log}]\n")
				var disk someDisk
				disk.full.Store(true)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				parts := Parts{Adapters: map[string]Adapter{"memory": memory(b)}}
				go func() {
					done <- runFile(ctx, parts.withDefaults(), filepath.Join(dir, "c.yaml"), &scalerFlags{}, nil, &disk)
				}()
				time.Sleep(10 * time.Second)
				if n := b.Unsettled("workers"); n != 1 {
					t.Errorf("%d messages are unsettled with the disk full, want 1", n)
				}
				disk.full.Store(false)
				time.Sleep(time.Minute)
				if n := b.Unsettled("workers"); n != 0 {
					t.Errorf("%d messages are unsettled with the disk free", n)
				}
				cancel()
				if err := <-done; err != nil || !strings.Contains(disk.String(), "sha256") {
					t.Errorf("%v; written:\n%s", err, disk.String())
				}
			})
		})
	}
}

// someDisk is a disk that takes nothing while it is full.
type someDisk struct {
	lockedBuffer
	full atomic.Bool
}

func (d *someDisk) Write(p []byte) (int, error) {
	if d.full.Load() {
		return 0, syscall.ENOSPC
	}
	return d.lockedBuffer.Write(p)
}
