package program

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/program/internal/config"
)

// A letter that waits for a limit is not being handled: the consumer's timeout begins with its call, and a stop does not wait for
// its turn.
func TestLettersWaitForLimits(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `consumers:
  orders:
    source: {nats: {url: "nats://127.0.0.1:1", stream: ORDERS, subjects: [orders], durable: d}}
    timeout: 1s
    middleware: [{use: rate_limit, with: {per_second: 0.1}}]
    routes: [{handler: log}]
`)
	synctest.Test(t, func(t *testing.T) {
		doc, err := config.Load(filepath.Join(dir, "c.yaml"), os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		d := &dlqReplay{parts: Parts{}.withDefaults()}
		handle, end, err := d.routes(ctx, &deadBox{doc: doc, name: "orders", consumer: doc.File.Consumers["orders"]}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		letter := &broker.Message{Topic: "orders", Value: []byte("x")}
		for n := range 2 { // the second one has its turn in 10 s
			if err := handle(context.Background(), letter); err != nil {
				t.Errorf("letter %d: %v", n, err)
			}
		}
		time.AfterFunc(100*time.Millisecond, stop)
		begun := time.Now()
		if err := handle(context.Background(), letter); !errors.Is(err, context.Canceled) || time.Since(begun) > time.Second {
			t.Errorf("%v after a stop: %v", time.Since(begun), err)
		}
	})
}
