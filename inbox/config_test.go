package inbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/inbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nowhere is a database that nobody can reach.
type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) {
	return nil, errors.New("nobody is there")
}
func (nowhere) Driver() driver.Driver { return nil }

// All that is wrong is said at once, by its field.
func TestBadConfig(t *testing.T) {
	_, err := inbox.New(inbox.Config{Table: "a b; DROP TABLE x", Interval: -1})
	for _, field := range []string{"inbox: DB ", "inbox: Dialect ", "inbox: Consumer ", "inbox: Table ", "inbox: Interval "} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v: want a line that begins with %q", err, field)
		}
	}
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	longest := strings.Repeat("x", 56)
	for _, table := range []string{"", "seen", "app.seen", "_seen2", longest, "app." + longest} {
		if _, err := inbox.New(inbox.Config{DB: db, Dialect: inbox.Postgres, Consumer: "billing", Table: table}); err != nil {
			t.Error(err)
		}
	}
	for dialect, refused := range map[inbox.Dialect]bool{inbox.Postgres: true, inbox.SQLite: false} {
		c := inbox.Config{DB: db, Dialect: dialect, Consumer: "billing", Table: "app." + longest + "x"}
		if err := c.Validate(); (err != nil) != refused {
			t.Errorf("a table of 57 characters, dialect %d: %v", dialect, err)
		}
	}
}

// A message that does not tell its log is refused, and nothing is asked of the database.
func TestNoLog(t *testing.T) {
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	x, err := inbox.New(inbox.Config{DB: db, Dialect: inbox.SQLite, Consumer: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := x.Once(t.Context(), nil, &broker.Message{Topic: "orders"}); first || !errors.Is(err, inbox.ErrNoLog) {
		t.Errorf("%v, %v", first, err)
	}
}

// TestNoTransaction: a database in place of its transaction is refused. The row would be there at once, and work that fails after
// it would be taken for done.
func TestNoTransaction(t *testing.T) {
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	x, err := inbox.New(inbox.Config{DB: db, Dialect: inbox.SQLite, Consumer: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := x.Once(t.Context(), db, &broker.Message{Topic: "orders"}); first || err == nil ||
		!strings.Contains(err.Error(), "not a transaction") {
		t.Errorf("%v, %v", first, err)
	}
}

// floors are a source's.
type floors []broker.Floor

func (f floors) Floors() []broker.Floor { return f }

// What could not be pruned is reported, and Run says it at its end.
func TestDatabaseAway(t *testing.T) {
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	reported := make(chan error, 100)
	x, err := inbox.New(inbox.Config{DB: db, Dialect: inbox.Postgres, Consumer: "billing", Interval: 1, Report: func(err error) {
		select {
		case reported <- err:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- x.Run(ctx, floors{{Log: "orders-1/0", Offset: 7}}) }()
	if err := <-reported; !strings.Contains(err.Error(), "orders-1/0") {
		t.Errorf("%v does not name the log", err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("Run has returned nil, and nothing was pruned")
	}
}

// TestReportPanics: a Report that panics ends no process, and the pruning goes on.
func TestReportPanics(t *testing.T) {
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reports := 0
	x, err := inbox.New(inbox.Config{DB: db, Dialect: inbox.Postgres, Consumer: "billing", Interval: 1, Report: func(error) {
		if reports++; reports == 2 {
			cancel()
		}
		panic("no pager")
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Run(ctx, floors{{Log: "orders-1/0", Offset: 7}}); err == nil || reports != 2 {
		t.Errorf("%d reports, and Run has returned %v", reports, err)
	}
}
