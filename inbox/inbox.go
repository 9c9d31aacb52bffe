package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// ErrNoLog says that a message does not tell which log it is of, so that nobody can know whether it was handled before. Its
// broker has no such thing (core NATS, Kafka before 2.8), we may not ask for it (the stream's info of JetStream), or nobody
// knows at the moment, for the stream was made anew just now: then its next delivery tells.
var ErrNoLog = errors.New("inbox: the message does not tell which log it is of")

// errNoTx says that the row would be committed before the work is done, which would then be lost where it fails.
var errNoTx = errors.New("inbox: Once was given a database, which is not a transaction: begin one, and do the work in it")

// A Tx is a transaction: a *sql.Tx, a *sql.Conn in which one was begun, and what wraps them. A *sql.DB would fit, and is none:
// Once refuses it.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// An Inbox remembers which messages a consumer has handled. Make it with New. Safe for concurrent use.
type Inbox struct {
	cfg Config
	say statements

	mu     sync.Mutex
	pruned map[string]int64 // by log
}

// New checks c and returns the inbox that it names. The error has every field that is wrong. It does not ask the database: see
// Create.
func New(c Config) (*Inbox, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	return &Inbox{cfg: c, say: c.Dialect.statements(c.Table), pruned: make(map[string]int64)}, nil
}

// Schema is how the two tables are made, for who makes them by migrations of their own: run Create otherwise.
func (x *Inbox) Schema() []string { return x.cfg.Dialect.statements(x.cfg.Table).create }

// Create makes the two tables where they are not there. Several processes may call it at once. On SQLite it waits up to some five
// seconds for others that are at it, besides the database's own busy timeout: a new database becomes one with a write-ahead log
// under a lock for which SQLite does not wait.
func (x *Inbox) Create(ctx context.Context) error {
	for pause := 10 * time.Millisecond; ; pause *= 2 {
		err := x.create(ctx)
		if err == nil {
			return nil
		}
		if !x.cfg.Dialect.locked(err) || pause > mostPause || !sleep(ctx, pause) {
			return fmt.Errorf("inbox: making table %s: %w", x.cfg.Table, err)
		}
	}
}

// mostPause is the longest between two tries of Create.
const mostPause = 3 * time.Second

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (x *Inbox) create(ctx context.Context) error {
	return x.within(ctx, func(tx *sql.Tx) error {
		for _, s := range x.say.create {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// Once writes down in tx that m is handled, and says whether that is so for the first time. true: do the work in tx, and commit
// it. false: it is done, and committed; end tx as you like. What tx comes to is the answer for all later runs: where it is not
// committed, the next one is the first.
//
// false says that the work in the database is done, and nothing of what the handler does beside: what an earlier run emitted
// (consumer.Emit) may be published nowhere, for that comes after Commit, and a crash or a publish that failed comes between. So
// emit whatever Once says: before it is asked what the message alone determines, and after it, in both cases, what is read from
// the database, as the first run has left it there. Or write outputs to a table of their own in tx, which something else
// publishes.
//
// While another transaction that has handled m is open, it waits for that one's end (PostgreSQL) or fails (SQLite, after its
// busy timeout). With an isolation above READ COMMITTED it may fail as any statement there: try again with a new transaction,
// as a handler that returns the error does. ErrNoLog: see there. After any error tx is to be rolled back.
func (x *Inbox) Once(ctx context.Context, tx Tx, m *broker.Message) (first bool, err error) {
	if _, ok := tx.(*sql.DB); ok {
		return false, errNoTx
	}
	if m.Log() == "" || m.Offset < 0 {
		return false, fmt.Errorf("%w: topic %s, partition %d, offset %d", ErrNoLog, m.Topic, m.Partition, m.Offset)
	}
	first, err = x.enter(ctx, tx, m)
	if err != nil {
		return false, fmt.Errorf("inbox: noting the message at %d of log %s: %w", m.Offset, m.Log(), err)
	}
	return first, nil
}

// enter writes the row first, and looks at the floor then. The other way round, this could happen: we read the floor, and are
// slow; another process handles the message, commits its position, and prunes its row; we find no row, and do the work again.
// So, whoever prunes raises the floor in the transaction that removes the row: we find the row, or wait for that transaction at
// the row, and read the floor after it.
func (x *Inbox) enter(ctx context.Context, tx Tx, m *broker.Message) (first bool, err error) {
	var isolation string
	switch err := tx.QueryRowContext(ctx, x.say.enter, x.cfg.Consumer, m.Log(), m.Offset).Scan(&isolation); {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	floor, err := x.floor(ctx, tx, m.Log(), isolation)
	if err != nil || m.Offset >= floor {
		return err == nil, err
	}
	_, err = tx.ExecContext(ctx, x.say.withdraw, x.cfg.Consumer, m.Log(), m.Offset)
	return false, err
}

// floor reads the floor of a log, as it is now. A transaction that reads everything as it was at its beginning would read an
// old one: it has to lock the row, which fails where somebody has raised it since.
func (x *Inbox) floor(ctx context.Context, tx Tx, log, isolation string) (floor int64, err error) {
	read := x.say.floor
	if isolation != "read committed" && isolation != "read uncommitted" {
		read = x.say.hold
		if _, err := tx.ExecContext(ctx, x.say.found, x.cfg.Consumer, log); err != nil {
			return 0, err
		}
	}
	err = tx.QueryRowContext(ctx, read, x.cfg.Consumer, log).Scan(&floor)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return floor, err
}

// within runs do in a transaction of our own.
func (x *Inbox) within(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := x.cfg.DB.BeginTx(ctx, &sql.TxOptions{Isolation: x.cfg.Dialect.isolation()})
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// locked says whether SQLite did not wait for who else is at the database. Its drivers have no error in common but the text.
func (d Dialect) locked(err error) bool {
	return d == SQLite && strings.Contains(err.Error(), "database is locked")
}

// isolation is what pruning needs, whatever the database's default is: a higher one would fail where another process has pruned.
func (d Dialect) isolation() sql.IsolationLevel {
	if d == Postgres {
		return sql.LevelReadCommitted
	}
	return sql.LevelDefault
}
