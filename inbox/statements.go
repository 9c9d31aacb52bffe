package inbox

import "strings"

// Statements are what is said to a database, in its dialect.
type statements struct {
	create []string
	// enter writes a message's row, and returns the transaction's isolation; no row where there is one already.
	enter string
	// withdraw takes that row back.
	withdraw string
	// floor reads a log's floor. found makes one where there is none, and hold reads it so that it cannot rise before the
	// transaction's end.
	floor, found, hold string
	// raise sets a floor where it is higher, and prune removes what is below.
	raise, prune string
}

func (d Dialect) statements(table string) statements {
	in := func(s string) string {
		s = strings.NewReplacer("{inbox}", table, "{floors}", table+"_floors").Replace(s)
		if d == SQLite { // ?1 is by number, as $1 is there
			s = strings.ReplaceAll(s, "$", "?")
		}
		return s
	}
	s := statements{
		create: []string{
			in(`CREATE TABLE IF NOT EXISTS {inbox} (consumer TEXT NOT NULL, log TEXT NOT NULL, position BIGINT NOT NULL,
				PRIMARY KEY (consumer, log, position))`),
			in(`CREATE TABLE IF NOT EXISTS {floors} (consumer TEXT NOT NULL, log TEXT NOT NULL, floor BIGINT NOT NULL,
				PRIMARY KEY (consumer, log))`),
		},
		enter: in(`INSERT INTO {inbox} (consumer, log, position) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
			RETURNING current_setting('transaction_isolation')`),
		withdraw: in(`DELETE FROM {inbox} WHERE consumer = $1 AND log = $2 AND position = $3`),
		floor:    in(`SELECT floor FROM {floors} WHERE consumer = $1 AND log = $2`),
		found:    in(`INSERT INTO {floors} (consumer, log, floor) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING`),
		hold:     in(`SELECT floor FROM {floors} WHERE consumer = $1 AND log = $2 FOR SHARE`),
		raise: in(`INSERT INTO {floors} AS f (consumer, log, floor) VALUES ($1, $2, $3)
			ON CONFLICT (consumer, log) DO UPDATE SET floor = excluded.floor WHERE f.floor < excluded.floor`),
		prune: in(`DELETE FROM {inbox} WHERE consumer = $1 AND log = $2 AND position < $3`),
	}
	switch d {
	case Postgres: // two processes that make the same table at once would else fail on the catalogue
		s.create = append([]string{`SELECT pg_advisory_xact_lock(5497658632)`}, s.create...)
	case SQLite: // who has written holds the only lock there is, and nobody else commits before it
		s.enter = strings.Replace(s.enter, "current_setting('transaction_isolation')", "'read committed'", 1)
	}
	return s
}
