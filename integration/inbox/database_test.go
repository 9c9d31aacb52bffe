//go:build unix

package inbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/longshoremq/longshore/inbox"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// patience is how long a test waits for a condition.
const patience = 60 * time.Second

// unique is a name that nothing else has.
func unique() string { return rand.Text()[:12] }

func TestMain(m *testing.M) {
	if arg := os.Getenv(workerEnv); arg != "" {
		os.Exit(workerMain(arg))
	}
	code := m.Run()
	kafkad.StopShared()
	if started {
		if p, err := postgresServer(); err == nil {
			p.stop()
		}
	}
	os.Exit(code)
}

// started: somebody has asked for a server.
var started bool

// A database is one of those that the inbox is for.
type database struct {
	Driver, DSN string
	Dialect     inbox.Dialect
}

// onEach runs a test with each of them, on an empty one.
func onEach(t *testing.T, run func(t *testing.T, d database)) {
	t.Run("sqlite", func(t *testing.T) { run(t, newSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { run(t, newPostgresDatabase(t)) })
}

func newSQLite(t testing.TB) database {
	file := filepath.Join(t.TempDir(), "test.db")
	return database{Driver: "sqlite", Dialect: inbox.SQLite,
		DSN: "file:" + file + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"}
}

func newPostgresDatabase(t testing.TB) database {
	started = true
	driver, dsn := newPostgres(t)
	return database{Driver: driver, DSN: dsn, Dialect: inbox.Postgres}
}

func (d database) open(t testing.TB) *sql.DB {
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// box makes an inbox with its tables, and a table of effects beside it.
func (d database) box(t testing.TB, db *sql.DB) *inbox.Inbox {
	x, err := inbox.New(inbox.Config{DB: db, Dialect: d.Dialect, Consumer: "billing", Interval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS effects (position BIGINT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return x
}

// rows counts those of a table.
func rows(t testing.TB, db *sql.DB, table string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(context.Background(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
