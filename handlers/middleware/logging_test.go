package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
	"github.com/rs/zerolog"
)

func TestLogging(t *testing.T) {
	for _, c := range []struct {
		err            error
		outcome, level string
	}{
		{nil, "ok", "info"},
		{consumer.Skip("old"), "skip", "info"},
		{errors.New("own\x1b[31m\n"), "error", "warn"},
		{consumer.Permanent(errors.New("own")), "permanent", "warn"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			h := middleware.Logging(zerolog.New(&out), zerolog.InfoLevel)(func(context.Context, *consumer.Message) error {
				time.Sleep(1500 * time.Microsecond)
				return c.err
			})
			if err := h(t.Context(), message(7)); !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			var e map[string]any
			if err := json.Unmarshal(out.Bytes(), &e); err != nil {
				t.Fatalf("%v: %s", err, &out)
			}
			for k, want := range map[string]any{"event": "handled", "topic": "orders", "partition": 1.0, "offset": 7.0, "attempt": 1.0,
				"took_ms": 1.5,
				"outcome": c.outcome, "level": c.level} {
				if e[k] != want {
					t.Errorf("%v: %s is %v, want %v", c.err, k, e[k], want)
				}
			}
			if text := out.String(); strings.Contains(text, "payload") || strings.Contains(text, "key") || strings.Contains(text, "\x1b") {
				t.Errorf("wrote %s", text)
			}
		})
	}
}

func TestLoggingBelowTheLevel(t *testing.T) {
	var out bytes.Buffer
	h := middleware.Logging(zerolog.New(&out).Level(zerolog.InfoLevel),
		zerolog.DebugLevel)(func(context.Context, *consumer.Message) error { return nil })
	if err := h(t.Context(), message(1)); err != nil || out.Len() != 0 {
		t.Errorf("error %v, wrote %s", err, &out)
	}
}

func ExampleLogging() {
	log := zerolog.New(zerolog.ConsoleWriter{Out: os.Stdout, NoColor: true, PartsOrder: []string{"level"},
		FieldsExclude: []string{"took_ms"}})
	h := middleware.Logging(log, zerolog.InfoLevel)(func(context.Context,
		*consumer.Message) error {
		return errors.New("out of stock")
	})
	_ = h(context.Background(), &consumer.Message{Topic: "orders", Partition: 3, Offset: 42, Attempt: 1})
	// Output: WRN error="out of stock" attempt=1 event=handled offset=42 outcome=error partition=3 topic=orders
}
