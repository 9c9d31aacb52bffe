package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// lastPrune bounds the pruning with which Run ends.
const lastPrune = 5 * time.Second

// Run prunes by the floors of a consumer, or of a source, every Config.Interval, until ctx ends, and once more then, for up to
// 5 s: let ctx end when the consumer's Run has returned, so that its last commits count (handlers.Setup.Beside gives such a ctx).
// It returns what that last pruning
// returned.
func (x *Inbox) Run(ctx context.Context, of broker.FloorReporter) error {
	tick := time.NewTicker(x.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPrune)
			defer cancel()
			return x.Prune(last, of.Floors())
		case <-tick.C:
		}
		if err := x.Prune(ctx, of.Floors()); err != nil && ctx.Err() == nil {
			x.report(err)
		}
	}
}

// report tells Report. A panic ends there: that somebody could not be told is no reason to stop pruning, nor to end the process.
func (x *Inbox) report(err error) {
	defer func() {
		if v := recover(); v != nil {
			slog.Error("a Report of the inbox panicked", "panic", v, "stack", string(debug.Stack()), "of", err)
		}
	}()
	x.cfg.Report(err)
}

// Prune removes what is below the floors, and keeps the floors. Each log has a transaction of its own; the error has those that
// failed. Several processes may prune at once, and a floor that is lower than one that was told before changes nothing.
func (x *Inbox) Prune(ctx context.Context, floors []broker.Floor) error {
	var errs []error
	for _, f := range floors {
		if !x.news(f) {
			continue
		}
		if err := x.within(ctx, func(tx *sql.Tx) error { return x.raise(ctx, tx, f) }); err != nil {
			errs = append(errs, fmt.Errorf("inbox: pruning log %s below %d: %w", f.Log, f.Offset, err))
			continue
		}
		x.mu.Lock()
		x.pruned[f.Log] = max(x.pruned[f.Log], f.Offset)
		x.mu.Unlock()
	}
	return errors.Join(errs...)
}

// news says whether a floor was not pruned by here yet.
func (x *Inbox) news(f broker.Floor) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return f.Offset > x.pruned[f.Log]
}

func (x *Inbox) raise(ctx context.Context, tx *sql.Tx, f broker.Floor) error {
	done, err := tx.ExecContext(ctx, x.say.raise, x.cfg.Consumer, f.Log, f.Offset)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 { // another process has done it
		return err
	}
	_, err = tx.ExecContext(ctx, x.say.prune, x.cfg.Consumer, f.Log, f.Offset)
	return err
}
