package kafkabroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// A stuckTxn is a transaction whose end is decided and cannot be written to a topic: fewer replicas are in sync there than
// min.insync.replicas wants, or its max.message.bytes is less than such an end has. Its coordinator tries for ever, and begins no
// other transaction of its id meanwhile.
type stuckTxn struct {
	at    *txnCoordinator
	topic string
	next  time.Time // when to ask again
	until time.Time // when to try this topic whatever is said: that end may be lost
}

const (
	stuckGap   = time.Second
	stuckMost  = 10 * time.Minute
	stuckShort = 10 * time.Second
	// groupsTopic is where committed offsets are.
	groupsTopic = "__consumer_offsets"
)

// halfway is insist for half of a transaction's time. busy is what was answered then, where the last transaction is still being
// written out.
func (x *transactor) halfway(ctx context.Context, do func() error) (busy, err error) {
	enough := time.Now().Add(x.timeout / 2)
	err = insist(ctx, func() error {
		err := do()
		if codeOf(err) == codeConcurrent && !time.Now().Before(enough) {
			busy = err
			return nil
		}
		return err
	})
	return busy, err
}

// nameOrEvade is name; where the last transaction is being written out for half of a transaction's time, it evades.
func (x *transactor) nameOrEvade(ctx context.Context) error {
	if !x.needsName() {
		return nil
	}
	busy, err := x.halfway(ctx, func() error { return x.askName(ctx) })
	if busy != nil {
		return x.evade(ctx, busy)
	}
	return err
}

// endElsewhere evades where the transaction whose end is asked for again is committed, and its end cannot be written. That it is
// ours the coordinator has looked at before it said that it is busy.
func (x *transactor) endElsewhere(ctx context.Context, busy error) (committed bool, err error) {
	of, unknown := x.to.describe(ctx)
	if unknown != nil || of.state != committing {
		return false, busy
	}
	if err = x.evade(ctx, busy); hasEvaded(err) {
		x.phase = x.phase.after(txnTold)
		return true, err
	}
	return false, err
}

// hasEvaded says whether evade goes on under another id.
func hasEvaded(err error) bool {
	var topic *outputError
	return errors.As(err, &topic)
}

// evade goes on under another transactional id where the last transaction is stuck, and lets only the topics wait where it is.
// That transaction is committed or aborted, whenever its end comes to be written: nothing that we do changes it any more. What it
// has written of offsets is read and overwritten by nobody before its end is there: see stable.
//
// It returns an *outputError, for what was to be written may go to these topics, or err, and why.
func (x *transactor) evade(ctx context.Context, err error) error {
	stuck, unknown := x.to.unfinished(ctx)
	if unknown != nil || len(stuck) == 0 {
		return err
	}
	where := strings.Join(stuck, ", ")
	why := fmt.Errorf("the end of transaction %s cannot be written to %s: are leaders away, or fewer replicas in sync there than "+
		"min.insync.replicas, or is max.message.bytes below 100?", x.to.id, where)
	if slices.Contains(stuck, groupsTopic) {
		return fmt.Errorf("%w: %w", err, why)
	}
	old := x.to
	x.to = &txnCoordinator{c: x.c, id: x.otherID()}
	if unnamed := x.name(ctx); unnamed != nil {
		x.to = old
		return fmt.Errorf("%w: %w; and under another id: %w", err, why, unnamed)
	}
	x.dest.hold(old, stuck)
	x.left.evaded()
	return &outputError{topic: where, first: true, err: fmt.Errorf("%w All else goes on under transactional id %s", why, x.to.id)}
}

// hold lets topics wait for the end of a transaction. Those that have refused nothing do so for a short time only: a coordinator
// that gives a transaction up, for one topic, does not tell what it has written to the others.
func (d *destinations) hold(at *txnCoordinator, topics []string) {
	now := time.Now()
	for _, topic := range topics {
		most := stuckMost
		if d.blocks[topic] == nil {
			most = stuckShort
		}
		d.stuck = append(d.stuck, &stuckTxn{at: at, topic: topic, next: now.Add(stuckGap), until: now.Add(most)})
	}
}

// release lets a topic be written again whose transaction is stuck no longer. A coordinator is asked once for all topics of a
// transaction: commits wait for its answer, and there may be hundreds of them.
func (x *transactor) release(ctx context.Context) {
	now := time.Now()
	said := make(map[*txnCoordinator]func(topic string) bool)
	x.dest.stuck = slices.DeleteFunc(x.dest.stuck, func(s *stuckTxn) bool {
		if now.Before(s.next) {
			return false
		}
		s.next = now.Add(stuckGap)
		if said[s.at] == nil {
			said[s.at] = x.ended(ctx, s.at)
		}
		return said[s.at](s.topic) || !now.Before(s.until)
	})
}

// ended asks to which topics the end of a transaction is written by now.
func (x *transactor) ended(ctx context.Context, at *txnCoordinator) func(topic string) bool {
	ctx, cancel := context.WithTimeout(ctx, x.c.timeout)
	defer cancel()
	topics, err := at.unfinished(ctx)
	return func(topic string) bool { return err == nil && !slices.Contains(topics, topic) }
}

// unfinished are the topics to which the end of the last transaction is still to be written; none, too, where that end is not
// decided, or all is over. Kafka 3.0 or newer is needed.
func (k *txnCoordinator) unfinished(ctx context.Context) ([]string, error) {
	of, err := k.describe(ctx)
	if !strings.HasPrefix(of.state, decided) {
		return nil, err
	}
	return of.topics, err
}

// A txnDescribed is what a coordinator says of an id's last transaction: its state, and the topics to which its end is to be
// written.
type txnDescribed struct {
	state  string
	topics []string
}

const (
	decided    = "Prepare" // how the states begin of one whose end is to be written
	committing = "PrepareCommit"
)

func (k *txnCoordinator) describe(ctx context.Context) (txnDescribed, error) {
	r, err := k.ask(ctx, keyDescribeTransactions, func(w *writer) {
		w.strs([]string{k.id})
		w.tags()
	})
	if err != nil {
		return txnDescribed{}, err
	}
	of, code, err := readTxnDescribed(r)
	if codeErr(code) != nil && kafka.Error(code) != codeNoTransaction {
		err = cmp.Or(err, k.check("describing a transaction", code))
	}
	return of, err
}

const codeNoTransaction = kafka.Error(105) // TRANSACTIONAL_ID_NOT_FOUND

// readTxnDescribed reads what a coordinator says of the one id that was asked for.
func readTxnDescribed(r *reader) (of txnDescribed, code int16, err error) {
	r.i32() // throttle time
	r.each(func() {
		code = r.i16()
		r.str() // id
		of.state = r.str()
		r.take(4 + 8 + 8 + 2) // timeout, start, producer
		r.each(func() {
			topic := r.str()
			left := 0
			r.each(func() { r.i32(); left++ })
			r.tags()
			if left > 0 {
				of.topics = append(of.topics, topic)
			}
		})
		r.tags()
	})
	r.tags()
	return of, code, r.err()
}
