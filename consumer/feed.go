package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/absence"
)

// A feed is one source and what its dispatcher needs.
type feed struct {
	source  broker.Source
	input   int // which of Config.Sources
	class   int // its class in the pool's queue; the levels of Priority follow it
	traits  broker.Traits
	leases  broker.LeaseReporter // nil: there are no leases
	retries bool                 // it reads the retry topics
	foreign bool                 // it was opened before, so that somebody else has it
	up      atomic.Bool
	parked  atomic.Int64 // messages of it that wait here: see parking
	calls   atomic.Int64 // of Receive, that have begun
	// assigned are the claims that the source has: from Assigned to Ended.
	assigned assigned

	emitting bool             // handlers may emit
	emitter  broker.Emitter   // nil: acks and outputs are not one
	output   broker.Publisher // Config.Output
	absent   absence.Topics   // of those that outputs go to
}

// assigned is a set of claims.
type assigned struct {
	mu     sync.Mutex
	claims map[*broker.Claim]bool
}

func (a *assigned) add(c *broker.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claims == nil {
		a.claims = map[*broker.Claim]bool{}
	}
	a.claims[c] = true
}

func (a *assigned) remove(c *broker.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.claims, c)
}

func (a *assigned) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.claims)
}

func (a *assigned) all() []*broker.Claim {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.claims))
}

// hold has the source fetch nothing of a claim until then; a time that has passed lets it go on. It says whether the source can.
func (f *feed) hold(claim *broker.Claim, until time.Time) bool {
	h, ok := f.source.(broker.Holder)
	if ok {
		h.Hold(claim, until)
	}
	return ok
}

// lapsed says whether another process may have a message of a claim by now.
func (f *feed) lapsed(claim *broker.Claim, token uint64) bool {
	return f.leases != nil && f.leases.Lapsed(claim, token)
}

// waits says whether the source can let a message wait that is not due.
func (f *feed) waits() bool {
	_, holds := f.source.(broker.Holder)
	return holds || f.traits.NativeDelay > 0
}

// maxDeliveries is after how many deliveries the broker drops a message; 0: never.
func (f *feed) maxDeliveries() int {
	if l, ok := f.source.(broker.DeliveryLimiter); ok {
		return l.MaxDeliveries()
	}
	return f.traits.MaxDeliveries
}

// emits takes note, at Open, of how handlers emit.
func (f *feed) emits(output broker.Publisher) {
	f.output = output
	if f.traits.Atomic {
		f.emitter, _ = f.source.(broker.Emitter)
	}
	f.emitting = f.emitter != nil || f.output != nil
}

// carries says whether what p publishes goes with the ack; nil: Config.Output, or where there is none whatever is emitted.
func (f *feed) carries(p broker.Publisher) bool {
	if p == nil {
		p = f.output
	}
	return f.emitter != nil && (p == nil || f.emitter.Carries(broker.Innermost(p)))
}

// feeds are all sources of a consumer, that of its retry topics at the end.
type feeds []*feed

// leasesOf is what tells of a source's leases; nil: it has none, or tells nothing of them.
func leasesOf(s broker.Source) broker.LeaseReporter {
	l, _ := s.(broker.LeaseReporter)
	return l
}

func newFeeds(cfg *Config) (fs feeds) {
	for i, in := range cfg.inputs() {
		fs = append(fs, &feed{source: in.Source, leases: leasesOf(in.Source), input: i, class: i * cfg.levels()})
	}
	if t := cfg.Retry.Topics; t != nil {
		fs = append(fs, &feed{source: t.Source, leases: leasesOf(t.Source), retries: true})
	}
	return fs
}

// connected says whether all sources had contact when they last spoke of it.
func (fs feeds) connected() bool {
	return !slices.ContainsFunc(fs, func(f *feed) bool { return !f.up.Load() })
}

// missingEvery is how often sources are asked that have nothing to read.
const missingEvery = 200 * time.Millisecond

// waitForOne waits until one of several sources has something to read, and tells once that it does. Each by itself was opened
// beside the others, and with a slip in all of their topics nobody would be told.
func (fs feeds) waitForOne(ctx context.Context, tell func(*feed, broker.Event)) error {
	for told := false; ; told = true {
		nothing := fs.missing()
		if nothing == nil {
			return nil
		}
		if !told {
			tell(fs[0], broker.Event{Kind: broker.Warning, Err: nothing})
		}
		select {
		case <-time.After(missingEvery):
		case <-ctx.Done():
			return fmt.Errorf("%w (given up: %w)", nothing, context.Cause(ctx))
		}
	}
}

// missing says what several sources wait for, where none has anything to read. One alone has waited in its Open, or is not to.
func (fs feeds) missing() error {
	var each []string
	for _, f := range fs {
		if f.retries {
			continue
		}
		a, ok := f.source.(broker.MissingReporter)
		if !ok {
			return nil
		}
		err := a.Missing()
		if err == nil {
			return nil
		}
		each = append(each, err.Error())
	}
	if len(each) < 2 {
		return nil
	}
	return fmt.Errorf("none of the %d sources has anything to read: %s", len(each), strings.Join(each, "; "))
}

// pausers calls do with each source that can pause by itself.
func (fs feeds) pausers(do func(broker.Pauser) error) error {
	var errs []error
	for _, f := range fs {
		if p, ok := f.source.(broker.Pauser); ok {
			if err := do(p); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// stop ends receiving; it does not wait.
func (fs feeds) stop() {
	for _, f := range fs {
		f.source.Stop()
	}
}

// close closes the sources beside each other, within timeout: one whose broker does not answer takes all of it, and the last acks
// of the others would not be committed.
func (fs feeds) close(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	errs := make([]error, len(fs))
	var closes sync.WaitGroup
	for i, f := range fs {
		if f.foreign {
			continue
		}
		closes.Go(func() {
			if err := f.source.Close(ctx); err != nil {
				errs[i] = fmt.Errorf("closing the source: %w", err)
			}
		})
	}
	closes.Wait()
	return errors.Join(errs...)
}

// lag is that of all sources together; unknown where one's is. The retry topics' is not in it: what lies there waits on purpose.
func (fs feeds) lag() (sum broker.Lag) {
	for _, f := range fs {
		if f.retries {
			continue
		}
		lag := f.lag()
		if lag.Waiting < 0 || lag.Unsettled < 0 {
			return broker.UnknownLag()
		}
		sum = addLag(sum, lag)
		if sum.At.IsZero() || lag.At.Before(sum.At) {
			sum.At = lag.At
		}
	}
	return sum
}

// lag is that of its source.
func (f *feed) lag() broker.Lag {
	if l, ok := f.source.(broker.LagReporter); ok {
		return l.Lag()
	}
	return broker.UnknownLag()
}

// claims is how many the sources have, that of the retry topics not counted.
func (fs feeds) claims() (n int) {
	for _, f := range fs {
		if !f.retries {
			n += f.assigned.len()
		}
	}
	return n
}

// floors are those of all sources, that of the retry topics too.
func (fs feeds) floors() (all []broker.Floor) {
	for _, f := range fs {
		if r, ok := f.source.(broker.FloorReporter); ok {
			all = append(all, r.Floors()...)
		}
	}
	return all
}

// addLag adds figures; the time stays that of sum.
func addLag(sum, l broker.Lag) broker.Lag {
	sum.Waiting, sum.Unsettled, sum.Group = sum.Waiting+l.Waiting, sum.Unsettled+l.Unsettled, sum.Group || l.Group
	sum.Held, sum.Full = sum.Held+l.Held, sum.Full || l.Full
	return sum
}

// waiting returns what the pool's manager asks, up to 200 times a second: how much waits at the brokers, and may come. For one
// goroutine.
func (fs feeds) waiting() func() int64 {
	n, at := int64(-1), time.Time{}
	return func() int64 {
		if now := time.Now(); now.Sub(at) >= lagEvery {
			lag := fs.lag()
			n, at = lag.Waiting-lag.Held, now
		}
		return n
	}
}

// lagEvery is how old the lag may be that the pool's manager sees.
const lagEvery = 100 * time.Millisecond

// lagByPartition is as Consumer.LagByPartition says.
func (fs feeds) lagByPartition() []broker.PartitionLag {
	if fs.lag().At.IsZero() {
		return nil
	}
	type partition struct {
		topic string
		no    int32
	}
	sums := map[partition]broker.Lag{}
	for _, f := range fs {
		if f.retries {
			continue
		}
		rows := f.rows()
		for _, row := range rows {
			if row.Waiting < 0 || row.Unsettled < 0 { // it has come just now
				return nil
			}
			p := partition{row.Topic, row.Partition}
			sum := addLag(sums[p], row.Lag)
			sum.At = row.At
			sums[p] = sum
		}
	}
	all := make([]broker.PartitionLag, 0, len(sums))
	for p, sum := range sums {
		all = append(all, broker.PartitionLag{Topic: p.topic, Partition: p.no, Lag: sum})
	}
	slices.SortFunc(all, func(a, b broker.PartitionLag) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all
}

// rows are the lags of a source's partitions; of one that has none, its lag in one row.
func (f *feed) rows() []broker.PartitionLag {
	if s, ok := f.source.(broker.PartitionLagReporter); ok {
		if rows := s.LagByPartition(); len(rows) > 0 {
			return rows
		}
	}
	return []broker.PartitionLag{{Partition: -1, Lag: f.source.(broker.LagReporter).Lag()}}
}
