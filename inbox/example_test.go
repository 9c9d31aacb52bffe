package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"log"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/inbox"
)

// A handler that writes each bill to the database once, and emits it at least once. It emits before it asks whether the message
// is new: a run that has committed may have published nothing, and the next one is not the first.
func ExampleInbox_Once() {
	db, err := sql.Open("pgx", "postgres://127.0.0.1/billing") // import _ "github.com/jackc/pgx/v5/stdlib"
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	box, err := inbox.New(inbox.Config{DB: db, Dialect: inbox.Postgres, Consumer: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background() // the program's, which a signal ends
	if err := box.Create(ctx); err != nil {
		log.Fatal(err)
	}
	handle := func(ctx context.Context, m *consumer.Message) error {
		if err := consumer.Emit(ctx, broker.Outgoing{Topic: "bills.new", Key: m.Key, Value: m.Value}); err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		first, err := box.Once(ctx, tx, m)
		if err != nil || !first {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO bills (id) VALUES ($1)", string(m.Key)); err != nil {
			return err
		}
		return tx.Commit()
	}
	b := membroker.New(membroker.Config{}) // or Kafka, or JetStream
	c, err := consumer.New(consumer.Config{
		Source:  b.Source(membroker.SourceConfig{Group: "billing", Topics: []string{"orders"}}),
		Handler: handle,
		Output:  b.Publisher(),
	})
	if err != nil {
		log.Fatal(err)
	}
	pruning, stop := context.WithCancel(context.Background())
	pruned := make(chan error, 1)
	go func() { pruned <- box.Run(pruning, c) }()
	err = c.Run(ctx)
	stop() // after the consumer's last commits
	if err := errors.Join(err, <-pruned); err != nil {
		log.Fatal(err)
	}
}
