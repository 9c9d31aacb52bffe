package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/program/internal/config"
)

// TestCopiesOfTwoGroups: two services read one stream, each with its durable, and hand on to another one. It has what each of
// them handed on, and nothing twice that one of them repeats; it took the second's for a repeat of the first's, and the message
// was acked.
func TestCopiesOfTwoGroups(t *testing.T) {
	srv, err := startNATS(t.Context(), zerolog.Nop(), t.TempDir(), server.RANDOM_PORT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.stop)
	if err := srv.ensureStreams(t.Context(), []stream{{"ORDERS", []string{"orders"}}, {"COPIES", []string{"copies"}}}); err != nil {
		t.Fatal(err)
	}
	m := &broker.Message{Topic: "orders", Partition: -1, Offset: 7, Nanos: 5, Value: []byte("x")}
	for _, durable := range []string{"bills", "mails"} {
		dir := t.TempDir()
		writeFile(t, dir, "c.yaml", fmt.Sprintf(`consumers:
  orders:
    source: {nats: {url: %q, stream: ORDERS, subjects: [orders], durable: %s}}
    routes: [{handler: publish, with: {to: copies}}]
`, srv.url, durable))
		doc, err := config.Load(filepath.Join(dir, "c.yaml"), os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		a := assemble(doc, Parts{}.withDefaults(), zerolog.Nop(), nil, func(error) {})
		if err := doc.Err(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.close() })
		for range 2 {
			if err := a.members[0].handler(t.Context(), m); err != nil {
				t.Error(err)
			}
		}
	}
	view, err := natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: natsbroker.Connection{URLs: []string{srv.url}}})
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	copies := 0
	_, err = view.Scan(context.Background(), broker.Scan{Topic: "copies"}, func(*broker.Message) error { copies++; return nil })
	if err != nil || copies != 2 {
		t.Errorf("%d copies, want one of each group; %v", copies, err)
	}
}
