package kafkabroker

import (
	"context"
	"fmt"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// A txnCoordinator is the broker that keeps a transactional id: where it is, what it speaks, and what it says. It is looked for
// again after an error. Not safe for concurrent use.
type txnCoordinator struct {
	c        *cluster
	id       string // transactional.id
	node     int32
	found    bool
	implicit bool // it speaks transaction version 2: see implicitVersions
}

const (
	codeConcurrent = kafka.Error(51) // CONCURRENT_TRANSACTIONS
	codeUnstable   = kafka.Error(88) // UNSTABLE_OFFSET_COMMIT
)

// concurrentGap is between tries while the last transaction is being written out.
const concurrentGap = 2 * time.Millisecond

// ask sends a request to the transaction's coordinator.
func (k *txnCoordinator) ask(ctx context.Context, key int16, body txnBody) (*reader, error) {
	node, err := k.find(ctx)
	if err != nil {
		return nil, err
	}
	ours := []int16{k.version(key)}
	if older, ok := olderVersions[key]; ok && !k.implicit {
		ours = append(ours, older)
	}
	version, err := k.c.pick(ctx, node, key, ours...)
	if err != nil {
		k.found = false
		return nil, err
	}
	w := writer{flexible: version >= flexibleSince[key]}
	body(&w)
	r, err := k.c.do(ctx, node, key, version, w.b)
	if err != nil {
		k.found = false
	}
	return r, err
}

func (k *txnCoordinator) find(ctx context.Context) (int32, error) {
	if k.found {
		return k.node, nil
	}
	w := writer{}
	w.str(k.id)
	w.i8(1) // of a transaction
	r, err := k.c.do(ctx, anyNode, keyFindCoordinator, 1, w.b)
	if err != nil {
		return 0, err
	}
	node, err := readCoordinator(r)
	if err != nil {
		return 0, fmt.Errorf("finding the transaction's coordinator: %w", err)
	}
	k.node, k.found = node, true
	return node, nil
}

// agreed says whether the cluster has agreed on transaction version 2. One that agrees on it later takes both.
func (k *txnCoordinator) agreed(ctx context.Context) (bool, error) {
	node, err := k.find(ctx)
	if err != nil {
		return false, err
	}
	vs, err := k.c.ask(ctx, node)
	if err != nil {
		k.found = false
		return false, err
	}
	for key, version := range implicitVersions {
		if _, err := choose(vs, key, version); err != nil {
			return false, nil
		}
	}
	if _, err := choose(vs, keyAPIVersions, featuresVersion); err != nil {
		return false, nil
	}
	level, err := k.c.feature(ctx, node, transactionFeature)
	if err != nil {
		k.found = false
	}
	return level >= 2, err
}

// version is that of a request of the transaction.
func (k *txnCoordinator) version(key int16) int16 {
	if v, ok := implicitVersions[key]; ok && k.implicit {
		return v
	}
	return txnVersions[key]
}

// check turns a code of the transaction's coordinator into an error.
func (k *txnCoordinator) check(what string, code int16) error {
	err := codeErr(code)
	switch codeOf(err) {
	case kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup:
		k.found = false
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// checkAnswer is check of an answer that is a throttle time and a code.
func (k *txnCoordinator) checkAnswer(what string, r *reader) error {
	r.i32()
	code := r.i16()
	if err := r.err(); err != nil {
		return err
	}
	return k.check(what, code)
}

// insist tries again while the coordinator is busy with the last transaction, or is not there yet.
func insist(ctx context.Context, do func() error) error {
	for wait := concurrentGap; ; wait = min(2*wait, retryWait) {
		err := do()
		switch codeOf(err) {
		case codeConcurrent, kafka.GroupLoadInProgress, kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup:
		default:
			return err
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return err
		}
	}
}
