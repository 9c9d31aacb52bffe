package kafkabroker

import (
	"cmp"
	"context"
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

// nameOrEvade is name; where the last transaction is being written out for half of a transaction's time, it evades.
func (x *transactor) nameOrEvade(ctx context.Context) (err error) {
	if !x.needsName() {
		return nil
	}
	var busy error
	enough := time.Now().Add(x.timeout / 2)
	err = insist(ctx, func() error {
		err := x.askName(ctx)
		if codeOf(err) == codeConcurrent && !time.Now().Before(enough) {
			busy = err
			return nil
		}
		return err
	})
	if busy != nil {
		return x.evade(ctx, busy)
	}
	return err
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
	w := writer{flexible: true}
	w.strs([]string{k.id})
	w.tags()
	r, err := k.ask(ctx, keyDescribeTransactions, w.b)
	if err != nil {
		return nil, err
	}
	topics, code, err := readUnfinished(r)
	if codeErr(code) != nil && kafka.Error(code) != codeNoTransaction {
		err = cmp.Or(err, k.check("describing a transaction", code))
	}
	return topics, err
}

const codeNoTransaction = kafka.Error(105) // TRANSACTIONAL_ID_NOT_FOUND

// readUnfinished reads what a coordinator says of the one id that was asked for.
func readUnfinished(r *reader) (topics []string, code int16, err error) {
	r.i32() // throttle time
	r.each(func() {
		code = r.i16()
		r.str()                                          // id
		decided := strings.HasPrefix(r.str(), "Prepare") // PrepareCommit, PrepareAbort
		r.take(4 + 8 + 8 + 2)                            // timeout, start, producer
		r.each(func() {
			topic := r.str()
			left := 0
			r.each(func() { r.i32(); left++ })
			r.tags()
			if decided && left > 0 {
				topics = append(topics, topic)
			}
		})
		r.tags()
	})
	r.tags()
	return topics, code, r.err()
}
