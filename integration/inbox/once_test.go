//go:build unix

package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/inbox"
)

func message(offset int64) *broker.Message {
	return &broker.Message{Topic: "orders", Name: "orders-1/0", Offset: offset}
}

// begin begins a transaction that ends with the test at the latest.
func begin(t testing.TB, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func once(t testing.TB, x *inbox.Inbox, tx *sql.Tx, m *broker.Message) bool {
	t.Helper()
	first, err := x.Once(context.Background(), tx, m)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// handle does the whole of a handler's work, and says whether it was the first to.
func handle(t testing.TB, x *inbox.Inbox, db *sql.DB, m *broker.Message) bool {
	t.Helper()
	tx := begin(t, db, sql.LevelDefault)
	first := once(t, x, tx, m)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return first
}

// What is committed is done, and what is rolled back is not; each message for itself, and each consumer.
func TestOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		x := d.box(t, db)
		tx := begin(t, db, sql.LevelDefault)
		if !once(t, x, tx, message(1)) || once(t, x, tx, message(1)) {
			t.Error("within a transaction: want the first time, and then not")
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if !handle(t, x, db, message(1)) {
			t.Error("what was rolled back counts as done")
		}
		if handle(t, x, db, message(1)) {
			t.Error("what was committed does not count as done")
		}
		if !handle(t, x, db, message(2)) || !handle(t, x, db, &broker.Message{Name: "orders-2/0", Offset: 1}) {
			t.Error("another message, or one of another log, counts as done")
		}
		other, err := inbox.New(inbox.Config{DB: db, Dialect: d.Dialect, Consumer: "shipping"})
		if err != nil {
			t.Fatal(err)
		}
		if !handle(t, other, db, message(1)) {
			t.Error("what one consumer has done counts as done for another one")
		}
	})
}

// Whoever comes while another run is open waits for what becomes of it.
func TestOnceBesideAnother(t *testing.T) {
	for name, commits := range map[string]bool{"commit": true, "rollback": false} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, d database) {
				db := d.open(t)
				x := d.box(t, db)
				one := begin(t, db, sql.LevelDefault)
				if !once(t, x, one, message(1)) {
					t.Fatal("the first one is not the first")
				}
				type answer struct {
					first bool
					err   error
				}
				answered := make(chan answer, 1)
				go func() {
					tx, err := db.BeginTx(context.Background(), nil)
					if err != nil {
						answered <- answer{err: err}
						return
					}
					first, err := x.Once(context.Background(), tx, message(1))
					answered <- answer{first, errors.Join(err, tx.Commit())}
				}()
				select {
				case a := <-answered:
					t.Fatalf("it did not wait: %+v", a)
				case <-time.After(100 * time.Millisecond): // it may not have asked yet; then it waits for nothing, and the answer is the same
				}
				end := one.Rollback
				if commits {
					end = one.Commit
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
				if a := <-answered; a.err != nil || a.first == commits {
					t.Errorf("after the %s the second one got %+v", name, a)
				}
			})
		})
	}
}

// What is below the floor is removed, and refused for ever, also where nothing was ever written down of it; a lower floor changes
// nothing.
func TestPrune(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		x, again := d.box(t, db), d.box(t, db)
		for o := range int64(10) {
			if o != 3 && !handle(t, x, db, message(o)) {
				t.Fatalf("message %d is not the first", o)
			}
		}
		prune := func(x *inbox.Inbox, floor int64) {
			t.Helper()
			if err := x.Prune(t.Context(), []broker.Floor{{Log: "orders-1/0", Offset: floor}, {Log: "other", Offset: 5}}); err != nil {
				t.Fatal(err)
			}
		}
		prune(x, 8)
		if n := rows(t, db, "longshore_inbox"); n != 2 {
			t.Errorf("%d rows are left, want those at 8 and 9", n)
		}
		for _, lower := range []*inbox.Inbox{x, again} {
			prune(lower, 5)
			for o := range int64(10) {
				if handle(t, x, db, message(o)) {
					t.Errorf("message %d counts as new after the floor was 8", o)
				}
			}
		}
		if n := rows(t, db, "longshore_inbox"); n != 2 {
			t.Errorf("%d rows are left after late runs below the floor, want 2", n)
		}
		if !handle(t, x, db, message(10)) {
			t.Error("a message above the floor is refused")
		}
		if n := rows(t, db, "longshore_inbox_floors"); n != 2 {
			t.Errorf("%d floors, want one for each log", n)
		}
	})
}

// A run that began before others handled its message, committed its position and pruned its row does not do the work again, at
// any isolation: also one that reads everything as it was then.
func TestLateRun(t *testing.T) {
	levels := []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
	onEach(t, func(t *testing.T, d database) {
		for _, level := range levels {
			if d.Dialect == inbox.SQLite && level != sql.LevelDefault {
				continue // it has one
			}
			for _, floorBefore := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/floor before %v", level, floorBefore), func(t *testing.T) {
					db := d.open(t)
					x := d.box(t, db)
					m := &broker.Message{Name: unique(), Offset: 5}
					prune := func(floor int64) {
						if err := x.Prune(t.Context(), []broker.Floor{{Log: m.Log(), Offset: floor}}); err != nil {
							t.Fatal(err)
						}
					}
					if floorBefore {
						prune(3)
					}
					late := begin(t, db, level)
					var n int
					if err := late.QueryRow("SELECT count(*) FROM effects").Scan(&n); err != nil { // now it sees what is there now
						t.Fatal(err)
					}
					if !handle(t, x, db, m) {
						t.Fatal("the first one is not the first")
					}
					prune(6)
					first, err := x.Once(t.Context(), late, m)
					t.Logf("the late run got %v, %v", first, err)
					if err == nil && first {
						t.Error("the late run was told that it is the first")
					}
					if err != nil && d.Dialect == inbox.Postgres && level <= sql.LevelReadCommitted {
						t.Errorf("the late run failed: %v", err)
					}
				})
			}
		}
	})
}

// A log is a stand-in for a broker's: it hands out messages again as it likes, and knows its floor.
type storm struct {
	mu   sync.Mutex
	done []bool
}

// pick is a message, finished or not: half of them at the floor, where pruning is.
func (s *storm) pick() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if floor := s.floor(); rand.IntN(2) == 0 && floor < int64(len(s.done)) {
		return max(0, min(floor+rand.Int64N(6)-3, int64(len(s.done)-1)))
	}
	return rand.Int64N(int64(len(s.done)))
}

func (s *storm) floor() int64 {
	for o, done := range s.done {
		if !done {
			return int64(o)
		}
	}
	return int64(len(s.done))
}

func (s *storm) ack(o int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[o] = true
}

// Floors implements broker.FloorReporter.
func (s *storm) Floors() []broker.Floor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []broker.Floor{{Log: "storm", Offset: s.floor()}}
}

// Whatever runs beside each other, are late, fail before or after they have committed, at any isolation, while two processes
// prune: each message has one effect, and nothing is left.
func TestStorm(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		x := d.box(t, db)
		second := d.box(t, d.open(t))
		s := &storm{done: make([]bool, 200)}
		pruning, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, x := range []*inbox.Inbox{x, second} {
			all.Go(func() {
				if err := x.Run(pruning, s); err != nil {
					t.Error(err)
				}
			})
		}
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for s.Floors()[0].Offset < int64(len(s.done)) {
					run(t, d, db, x, s)
				}
			})
		}
		workers.Wait()
		stop()
		all.Wait()
		var messages, effects int
		if err := db.QueryRow("SELECT count(DISTINCT position), count(*) FROM effects").Scan(&messages, &effects); err != nil {
			t.Fatal(err)
		}
		if messages != len(s.done) || effects != len(s.done) {
			t.Errorf("%d messages have effects, %d in all, want %d", messages, effects, len(s.done))
		}
		if err := x.Prune(t.Context(), []broker.Floor{{Log: "storm", Offset: 1000}}); err != nil {
			t.Fatal(err)
		}
		if n := rows(t, db, "longshore_inbox"); n != 0 {
			t.Errorf("%d rows are left above the end", n)
		}
	})
}

// run handles one message, at a random pace, and perhaps fails.
func run(t *testing.T, d database, db *sql.DB, x *inbox.Inbox, s *storm) {
	ctx, o := t.Context(), s.pick()
	level := sql.LevelDefault
	if d.Dialect == inbox.Postgres {
		level = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}[rand.IntN(3)]
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = tx.Rollback() }()
	if rand.IntN(3) == 0 { // it sees what is there now
		var n int
		_ = tx.QueryRowContext(ctx, "SELECT count(*) FROM effects").Scan(&n)
		time.Sleep(rand.N(30 * time.Millisecond))
	}
	first, err := x.Once(ctx, tx, &broker.Message{Name: "storm", Offset: o})
	if err != nil {
		return // another run has it, or the database would have it again
	}
	if rand.IntN(4) == 0 {
		time.Sleep(rand.N(5 * time.Millisecond))
	}
	if first {
		if _, err := tx.ExecContext(ctx, insertEffect(d.Dialect), o); err != nil {
			return
		}
	}
	if rand.IntN(10) == 0 || tx.Commit() != nil || rand.IntN(10) == 0 {
		return // before the commit, or behind it: the broker does not hear of it
	}
	s.ack(o)
}

// A message that does not tell its log is refused before anything is written.
func TestNoLog(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		x := d.box(t, db)
		for _, m := range []*broker.Message{{Topic: "orders", Offset: 1}, {Name: "orders", Offset: -1}} {
			if first, err := x.Once(t.Context(), begin(t, db, sql.LevelDefault), m); first || !errors.Is(err, inbox.ErrNoLog) {
				t.Errorf("%+v: %v, %v", m, first, err)
			}
		}
	})
}

// Who makes the tables by migrations of their own has what Create would have made.
func TestSchema(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		x, err := inbox.New(inbox.Config{DB: db, Dialect: d.Dialect, Consumer: "billing", Table: "mine"})
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range x.Schema() {
			if _, err := db.ExecContext(context.Background(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		if !handle(t, x, db, message(1)) || handle(t, x, db, message(1)) {
			t.Error("want the first time, and then not")
		}
		if err := x.Prune(context.Background(), []broker.Floor{{Log: message(1).Log(), Offset: 2}}); err != nil {
			t.Error(err)
		}
		if err := x.Create(context.Background()); err != nil {
			t.Errorf("Create beside it: %v", err)
		}
	})
}

// Several processes may make the tables at once.
func TestCreateAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		var all sync.WaitGroup
		for range 8 {
			db := d.open(t)
			x, err := inbox.New(inbox.Config{DB: db, Dialect: d.Dialect, Consumer: "billing"})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if err := x.Create(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}
