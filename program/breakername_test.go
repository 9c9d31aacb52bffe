package program

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/rs/zerolog"
)

// TestBreakerIsNamedInTheLog: of several breakers of a consumer, the log says which one opened, by its name or its place.
func TestBreakerIsNamedInTheLog(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"disk": "name: disk, ", "routes.0.middleware.0": ""} {
		doc := config.Parse("c.yaml", []byte("consumers:\n  o:\n    source: {nats: {stream: S, subjects: [a], durable: d}}\n    "+
			"routes: [{handler: log, middleware: [{use: circuit_breaker, "+text+"with: {min_calls: 1}}]}]\n"), nil)
		var out bytes.Buffer
		a := &assembly{doc: doc, parts: Parts{}.withDefaults()}
		m := &member{log: zerolog.New(&out), setup: &handlers.Setup{}, limits: limits{}, breakers: breakers{}}
		chain, ok := a.chain("consumers.o.routes[0]", doc.File.Consumers["o"].Routes[0].Middleware, m)
		if !ok || m.breakers[name] == nil {
			t.Fatal(ok, doc.Err(), m.breakers)
		}
		_ = chain[0](func(context.Context, *consumer.Message) error { return errors.New("down") })(t.Context(), &consumer.Message{})
		if want := `"breaker":"` + name + `","state":"open"`; !strings.Contains(out.String(), want) {
			t.Errorf("%s does not have %s", out.String(), want)
		}
	}
}
