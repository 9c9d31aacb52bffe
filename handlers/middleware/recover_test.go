package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

func TestRecover(t *testing.T) {
	own := errors.New("own")
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"text":      {"boom", "panic: boom"},
		"error":     {own, "panic: own"},
		"nil":       {nil, "panic: panic called with nil argument"},
		"nil map":   {"map", "assignment to entry in nil map"},
		"no panic":  {"none", ""},
		"own error": {"err", "own"},
	} {
		t.Run(name, func(t *testing.T) {
			h := middleware.Recover()(func(context.Context, *consumer.Message) error {
				switch c.value {
				case "none":
					return nil
				case "err":
					return own
				case "map":
					m := noMap()
					m["x"] = 1
				}
				panic(c.value)
			})
			err := h(t.Context(), message(1))
			if c.want == "" {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			var p *consumer.PanicError
			if errors.As(err, &p) == (c.value == "err") {
				t.Errorf("a PanicError: %v", p)
			}
			if p != nil && !strings.Contains(string(p.Stack), "recover_test.go") {
				t.Errorf("the stack does not show where: %s", p.Stack)
			}
			if c.value == any(own) && !errors.Is(err, own) {
				t.Error("the panic's error cannot be found")
			}
		})
	}
}

func ExampleRecover() {
	seen := func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, m *consumer.Message) error {
			err := next(ctx, m)
			fmt.Println("outside:", err)
			return err
		}
	}
	h := consumer.Chain(seen, middleware.Recover())(func(context.Context, *consumer.Message) error { panic("boom") })
	_ = h(context.Background(), &consumer.Message{})
	// Output: outside: panic: boom
}

// noMap is behind a variable, or the mistake would be found before it is run.
var noMap = func() map[string]int { return nil }
