package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/rs/zerolog"
)

// What a consumer logs comes to a handler of log/slog, with its name, level and fields.
func TestSlogLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["partitioned"])
		produce(t, b, 1)
		var out sheet
		r := start(t, b, consumer.Config{
			Name: "c", Logger: consumer.SlogLogger(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})),
			Handler: func(context.Context, *consumer.Message) error { return errors.New("no") },
		})
		time.Sleep(100 * time.Millisecond)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if lines := out.of(t, "state"); len(lines) > 0 {
			t.Errorf("below the handler's level: %v", lines)
		}
		failed := out.of(t, "failed")
		if len(failed) != 1 {
			t.Fatalf("%d lines of a failure", len(failed))
		}
		for k, want := range map[string]any{"msg": "failed", "level": "WARN", "consumer": "c", "error": "no", "class": "error",
			"topic": "in", "offset": 0.0, "attempt": 1.0} {
			if got := failed[0][k]; got != want {
				t.Errorf("%s is %v, want %v", k, got, want)
			}
		}
	})
}

// Levels and values come through as they are.
func TestSlogLoggerValues(t *testing.T) {
	var out bytes.Buffer
	h := slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug - 4,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
	log := consumer.SlogLogger(h)
	log.Trace().Int64("n", 1<<60).Float64("f", 1.5).Bool("b", true).Interface("none", nil).Msg("said")
	log.Error().Str("event", "e").Strs("list", []string{"a", "b"}).Dict("group", zerolog.Dict().Str("in", "it")).Send()
	log.Log().Msg("without a level")
	want := `{"level":"DEBUG-4","msg":"said","n":1152921504606846976,"f":1.5,"b":true,"none":null}
{"level":"ERROR","msg":"e","event":"e","list":["a","b"],"group":{"in":"it"}}
{"level":"INFO","msg":"without a level"}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// A level that the handler does not take costs no encoding.
func TestSlogLoggerIsLazy(t *testing.T) {
	log := consumer.SlogLogger(slog.NewTextHandler(&bytes.Buffer{}, nil))
	if e := log.Debug(); e.Enabled() {
		t.Error("a debug line is written for a handler that takes info and above")
	}
	if n := testing.AllocsPerRun(100, func() { log.Debug().Str("a", "b").Send() }); n > 0 {
		t.Errorf("%v allocations for nothing", n)
	}
}

// FuzzSlogLogger: whatever is written is one record, and what is no line of JSON is its message.
func FuzzSlogLogger(f *testing.F) {
	f.Add(`{"level":"info","event":"e","n":1}`)
	f.Add(`{"a":{"b":[1,{"c":null}]},"d":1e400}`)
	f.Add(`[1]`)
	f.Add(`{"a":`)
	f.Fuzz(func(t *testing.T, line string) {
		var out bytes.Buffer
		log := consumer.SlogLogger(slog.NewJSONHandler(&out, nil))
		_, _ = log.Write([]byte(line))
		if n := strings.Count(out.String(), "\n"); n != 1 {
			t.Fatalf("%d records of %q:\n%s", n, line, out.String())
		}
		if !json.Valid([]byte(line)) && strings.TrimSpace(line) != "" && !strings.Contains(out.String(), `"msg"`) {
			t.Fatalf("%q is lost in %s", line, out.String())
		}
	})
}

// A consumer without a logger says on stderr why nothing happens; with one that writes nothing it is silent.
func TestWithoutALogger(t *testing.T) {
	for name, c := range map[string]struct {
		log  zerolog.Logger
		want bool
	}{"none": {zerolog.Logger{}, true}, "silent": {zerolog.Nop(), false}} {
		t.Run(name, func(t *testing.T) {
			said := consumer.WithStderr(t, func() {
				synctest.Test(t, func(t *testing.T) {
					b := membroker.New(kinds["partitioned"])
					produce(t, b, 1)
					c, err := consumer.New(consumer.Config{
						Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Logger: c.log,
						Handler: func(context.Context, *consumer.Message) error { return errors.New("connection refused") },
					})
					if err != nil {
						t.Fatal(err)
					}
					ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
					defer stop()
					if err := c.Run(ctx); err != nil {
						t.Fatal(err)
					}
				})
			})
			if c.want != strings.Contains(said, "connection refused") || !c.want && said != "" || strings.Contains(said, "INF") {
				t.Errorf("on stderr:\n%s", said)
			}
		})
	}
}

// A logger that is given another sampler, as the admin server gives its own, writes no more than the handler takes.
func TestSlogLoggerWithASampler(t *testing.T) {
	var out bytes.Buffer
	log := consumer.SlogLogger(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))
	log = log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Second})
	log.Warn().Msg("below")
	if out.Len() > 0 {
		t.Errorf("written: %s", out.String())
	}
	if log.Error().Msg("taken"); !strings.Contains(out.String(), "taken") {
		t.Errorf("written: %q", out.String())
	}
}
