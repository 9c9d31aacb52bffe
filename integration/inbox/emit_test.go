//go:build unix

package inbox

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/inbox"
)

// failing fails its first calls, as one whose topic is missing.
type failing struct {
	broker.Publisher
	left atomic.Int32
}

func (f *failing) Publish(ctx context.Context, outs []broker.Outgoing) error {
	if f.left.Add(-1) >= 0 {
		return errors.New("no such topic")
	}
	return f.Publisher.Publish(ctx, outs)
}

// writer is the handler of docs/guarantees.md. late: it emits where only the first run comes, as somebody would who has not read
// there that a repeat has to emit, too.
func writer(d database, db *sql.DB, x *inbox.Inbox, late bool) consumer.Handler {
	emit := func(ctx context.Context, m *consumer.Message) error {
		return consumer.Emit(ctx, broker.Outgoing{Topic: "bills", Key: m.Key, Value: m.Value})
	}
	return func(ctx context.Context, m *consumer.Message) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if !late {
			if err := emit(ctx, m); err != nil {
				return err
			}
		}
		first, err := x.Once(ctx, tx, m)
		if err != nil || !first {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertEffect(d.Dialect), m.Offset); err != nil {
			return err
		}
		if late {
			if err := emit(ctx, m); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
}

// What a handler emits before it asks Once is published though the first publish failed after the commit; and the database has
// each message once. What it emits in the first run alone is lost: the test would see it.
func TestEmitAgain(t *testing.T) {
	for name, late := range map[string]bool{"in both cases": false, "in the first run only": true} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, d database) { emitAgain(t, d, late) })
		})
	}
}

func emitAgain(t *testing.T, d database, late bool) {
	db := d.open(t)
	x := d.box(t, db)
	b := membroker.New(membroker.Config{})
	output := &failing{Publisher: b.Publisher()}
	output.left.Store(1)
	const n = 5
	for range n {
		if err := b.Produce(broker.Outgoing{Topic: "orders", Key: []byte("o"), Value: []byte("order")}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := consumer.New(consumer.Config{
		Source:  b.Source(membroker.SourceConfig{Group: "billing", Topics: []string{"orders"}}),
		Handler: writer(d, db, x, late), Output: output, Pool: consumer.Pool{Min: 1, Max: 1},
		Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: time.Millisecond, Max: time.Millisecond}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	for end := time.Now().Add(patience); b.Unsettled("billing") != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it was not finished")
		}
	}
	stop()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if got := rows(t, db, "effects"); got != n {
		t.Errorf("the database has %d rows, want %d", got, n)
	}
	want := n
	if late {
		want-- // the one whose publish failed
	}
	if got := len(b.Messages("bills")); got != want {
		t.Errorf("%d outputs were published, want %d", got, want)
	}
}
