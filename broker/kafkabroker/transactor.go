package kafkabroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// A transactor writes outputs and committed offsets in transactions, one at a time: see txnPhase. Each is a round of a few
// exchanges, so that it has as much as was finished since the last one.
type transactor struct {
	c       *cluster
	k       *coordinator // of the group
	timeout time.Duration

	turn      chan struct{} // full: a transaction is under way, or resolved. All but positions is the committer's.
	phase     txnPhase
	by        producer
	sequences map[partitionID]int32
	to        *txnCoordinator
	otherID   func() string // a transactional id that nobody had
	evaded    error         // of resolve: why another one was taken, until it has told
	left      leftovers
	dest      *destinations
}

var (
	// errUnclear: EndTxn got no answer. What became of the transaction is to be found out: resolve.
	errUnclear = errors.New("kafkabroker: nobody knows whether the transaction was committed")
	// errNotOurs: a partition was lost before the transaction began.
	errNotOurs = errors.New("kafkabroker: a partition of the transaction was lost")
	// errAborted is the answer to a commitment that was all right, in a transaction that was not.
	errAborted = errors.New("kafkabroker: the transaction was aborted")
)

func newTransactor(k *coordinator, cfg *Config) *transactor {
	dest := newDestinations(k.c, cfg.Compression == "snappy")
	dest.parts = partitioner(cfg.Partitioner)
	x := &transactor{
		c: k.c, k: k, timeout: cfg.TransactionTimeout, turn: make(chan struct{}, 1),
		to: &txnCoordinator{c: k.c, id: cfg.transactionalID()}, otherID: cfg.otherTransactionalID, dest: dest,
	}
	if cfg.InstanceID != "" {
		x.left = inherited()
	}
	return x
}

// enter waits until no transaction is under way, and lets none be until leave.
func (x *transactor) enter(ctx context.Context) error {
	select {
	case x.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of a transaction: %w", ctx.Err())
	}
}

func (x *transactor) leave() { <-x.turn }

// commit writes outputs and offsets, both or none, where they are still ours when its turn comes. nil: both are written.
// errUnclear: ask resolve. With any other error nothing is, and each commitment has its own error, too.
//
// What was lost before it begins must not be written, and what is lost later begins again behind it (positions): in the consumer
// protocol a member that was silent for a session may get its partitions back with the same epoch, so that the group refuses
// nothing of what was done before, and it would be there twice.
func (x *transactor) commit(ctx context.Context, ours func() bool, by map[memberID][]*commitment, outs []*broker.Outgoing) error {
	all := func(err error) {
		for _, cs := range by {
			for _, c := range cs {
				c.err = err
			}
		}
	}
	all(errAborted)
	if err := x.enter(ctx); err != nil {
		return err
	}
	defer x.leave()
	if x.phase.isOpenQuestion() {
		return errUnclear // never: the committer resolves it first
	}
	if !ours() {
		return errNotOurs
	}
	if err := x.nameOrEvade(ctx); err != nil {
		return err
	}
	rounds, err := x.dest.plan(ctx, outs)
	if err == nil {
		err = x.sweep(ctx, rounds)
	}
	if err != nil {
		return err
	}
	x.phase = x.phase.after(txnBegun)
	x.left.begin(rounds)
	if err := x.write(ctx, by, rounds); err != nil {
		x.phase = x.phase.after(txnFailed)
		return err
	}
	if err := x.end(ctx); err != nil {
		x.phase = x.phase.after(txnUnanswered)
		return fmt.Errorf("%w: %w", errUnclear, err)
	}
	x.phase = x.phase.after(txnEnded)
	x.left.committed()
	x.dest.written(outs)
	all(nil)
	return nil
}

// refused says that the broker will never let us have transactions: we may not use the id, or it aborts none so late.
func (x *transactor) refused(err error) bool {
	code := codeOf(err)
	return x.phase == txnStranger && (code == kafka.TransactionalIDAuthorizationFailed || code == kafka.InvalidTransactionTimeout)
}

// abandon ends what is open, as far as that takes no longer than ctx. One whose EndTxn got no answer may be open, too: that is
// sent once more, and where it is refused, the transaction is aborted.
func (x *transactor) abandon(ctx context.Context) {
	if x.phase == txnUnclear {
		if committed, _ := x.endAgain(ctx); committed {
			return
		}
	}
	if x.phase == txnBroken || x.phase == txnUnclear {
		_ = x.name(ctx)
	}
}

// name gets a producer id, where the phase wants one, or a new epoch of it, where there are so many sequences that most may be of
// topics that are gone: under that they begin anew.
func (x *transactor) name(ctx context.Context) error {
	if !x.needsName() {
		return nil
	}
	return insist(ctx, func() error { return x.askName(ctx) })
}

func (x *transactor) needsName() bool { return x.phase.needsName() || len(x.sequences) > mostLearned }

func (x *transactor) askName(ctx context.Context) error {
	implicit, err := x.to.agreed(ctx)
	if err != nil {
		return err
	}
	r, err := x.to.ask(ctx, keyInitProducerID, initProducerBody(x.to.id, x.timeout))
	if err != nil {
		return err
	}
	by, code, err := readProducer(r)
	if err != nil {
		return err
	}
	if err := x.to.check("getting a producer id", code); err != nil {
		return err
	}
	x.by, x.sequences, x.to.implicit = by, make(map[partitionID]int32), implicit
	x.phase = x.phase.after(txnNamed)
	return nil
}

// write sends all of a transaction but its end, one after the other. What would be saved by sending the offsets beside the
// outputs is lost again: a broker asks the transaction's coordinator at the first batch of a partition, and at the first offset,
// whether it belongs to the transaction, and where it would ask twice at a time it refuses one of them (NOT_ENOUGH_REPLICAS).
func (x *transactor) write(ctx context.Context, by map[memberID][]*commitment, rounds [][]*outBatch) error {
	if len(rounds) > 0 {
		if err := x.announce(func() error { return x.addPartitions(ctx, x.left.last) }); err != nil {
			return err
		}
		if err := x.produceAll(ctx, parcels(rounds)); err != nil {
			return err
		}
	}
	if err := x.announce(func() error { return x.addGroup(ctx) }); err != nil {
		return err
	}
	for me, cs := range by {
		for _, some := range portions(cs) {
			if err := x.commitOffsets(ctx, me, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// announce tells the coordinator what is part of the transaction, where what is written does not tell that itself.
func (x *transactor) announce(add func() error) error {
	if x.to.implicit {
		return nil
	}
	return add()
}

func (x *transactor) addGroup(ctx context.Context) error {
	return insist(ctx, func() error {
		r, err := x.to.ask(ctx, keyAddOffsetsToTxn, addOffsetsBody(x.to.id, x.by, x.k.group))
		if err != nil {
			return err
		}
		return x.to.checkAnswer("adding the group to the transaction", r)
	})
}

func (x *transactor) addPartitions(ctx context.Context, ps []partitionID) error {
	return insist(ctx, func() error {
		r, err := x.to.ask(ctx, keyAddPartitionsToTxn, addPartitionsBody(x.to.id, x.by, ps))
		if err != nil {
			return err
		}
		codes, err := readCodes(r)
		if err != nil {
			return err
		}
		var other error
		for _, p := range ps {
			code, ok := codes[p]
			if !ok { // older brokers would store its batches outside of the transaction
				return fmt.Errorf("adding a partition to the transaction: no answer for %s/%d: %w", p.topic, p.no, errShort)
			}
			err := x.to.check("adding a partition to the transaction", code)
			switch codeOf(err) {
			case 0, codeNotAttempted:
			case kafka.UnknownTopicOrPartition, kafka.TopicAuthorizationFailed, kafka.InvalidTopic:
				return x.dest.block(p.topic, err) // the others say that they were not attempted
			default:
				other = err
			}
		}
		return other
	})
}

const codeNotAttempted = kafka.Error(55) // OPERATION_NOT_ATTEMPTED

// produceAll sends one round after the other, and makes the next one ready while one is on its way.
func (x *transactor) produceAll(ctx context.Context, rounds [][]*outBatch) error {
	ready := x.seal(rounds[0])
	for i, round := range rounds {
		answers := x.produce(ctx, ready)
		if ready = nil; i+1 < len(rounds) {
			ready = x.seal(rounds[i+1])
		}
		refused, err := x.produced(answers)
		if err == nil && len(refused) > 0 {
			err = x.follow(ctx, refused)
		}
		if err != nil {
			return err
		}
		for _, b := range round {
			b.spare()
		}
	}
	return nil
}

// mostProduced is how large a request is made, unless one batch is larger. Brokers close the connection of one of more than
// 100 MiB (socket.request.max.bytes), and would do so at each try.
const mostProduced = 32 << 20

// parcels are rounds in the same order, none of which has more for a leader than a request takes.
func parcels(rounds [][]*outBatch) (all [][]*outBatch) {
	for _, round := range rounds {
		from, sizes := 0, make(map[int32]int)
		for i, b := range round {
			if sizes[b.leader] += len(b.buf); sizes[b.leader] > mostProduced && i > from {
				all, from = append(all, round[from:i]), i
				clear(sizes)
				sizes[b.leader] = len(b.buf)
			}
		}
		all = append(all, round[from:])
	}
	return all
}

// seal completes the batches of a round, and sorts them by their leaders.
func (x *transactor) seal(round []*outBatch) map[int32][]*outBatch {
	by := make(map[int32][]*outBatch)
	now := time.Now()
	for _, b := range round {
		if x.dest.compresses(b.topic) {
			b.squeeze()
		}
		b.encode(x.by, x.sequences[b.partitionID], now)
		x.sequences[b.partitionID] = nextSequence(x.sequences[b.partitionID], b.n)
		by[b.leader] = append(by[b.leader], b)
	}
	return by
}

// An answer is what a leader said to batches: of which it is not the leader, or why it did not write one.
type answer struct {
	moved []*producedError
	err   error
}

// produce sends a round to all leaders beside each other. So many answers come as there are leaders.
func (x *transactor) produce(ctx context.Context, by map[int32][]*outBatch) (answers []chan answer) {
	for leader, batches := range by {
		to := make(chan answer, 1)
		go func() { to <- x.patientProduce(ctx, leader, batches) }()
		answers = append(answers, to)
	}
	return answers
}

// produced waits for all answers to a round. Its error is the first one; moved are the batches that others lead.
func (x *transactor) produced(answers []chan answer) (moved []*producedError, first error) {
	for _, of := range answers {
		var refused *producedError
		a := <-of
		if errors.As(a.err, &refused) {
			a.err = x.dest.refused(refused)
		}
		if first == nil {
			first = a.err
		}
		moved = append(moved, a.moved...)
	}
	return moved, first
}

const (
	followGap   = 10 * time.Millisecond // before the first try, and twice as long before each other
	followTries = 7                     // which take more than a second
)

// follow sends batches to those who lead their partitions by now. A broker that is not the leader has written nothing; where it
// was the leader, and what it wrote stays, that is known by its sequence. Who leads may not be known everywhere yet, so it tries
// for a while; then the topic waits, and not all others for it.
func (x *transactor) follow(ctx context.Context, moved []*producedError) (err error) {
	for try, wait := 0, followGap; len(moved) > 0; try, wait = try+1, 2*wait {
		if try == followTries {
			return x.dest.refused(moved[0])
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return x.dest.refused(moved[0])
		}
		if err = x.dest.lead(ctx, moved); err != nil {
			return err
		}
		by := make(map[int32][]*outBatch)
		for _, m := range moved {
			by[m.batch.leader] = append(by[m.batch.leader], m.batch)
		}
		if moved, err = x.produced(x.produce(ctx, by)); err != nil {
			return err
		}
	}
	return nil
}

func (x *transactor) produceTo(ctx context.Context, leader int32, batches []*outBatch) answer {
	bytes := make(map[partitionID][]byte, len(batches))
	for _, b := range batches {
		bytes[b.partitionID] = b.buf
	}
	version := x.to.version(keyProduce)
	body, chunks := produceBody(version, x.to.id, x.c.timeout, bytes)
	r, err := x.c.produce(ctx, leader, version, body, chunks)
	if err != nil {
		return answer{err: &producedError{batches[0].topic, nil, err}}
	}
	said, err := readProduced(r)
	if err != nil {
		return answer{err: err}
	}
	var a answer
	for _, b := range batches {
		of, ok := said[b.partitionID]
		if ok && of.code == 0 {
			continue
		}
		err := codeErr(max(of.code, -1))
		if !ok {
			err = errShort // it has no answer for it
		}
		err = fmt.Errorf("%s/%d: %w", b.topic, b.no, err)
		if of.message != "" { // a code may stand for several things
			err = fmt.Errorf("%w: %s", err, of.message)
		}
		refused := &producedError{b.topic, b, err}
		if isMoved(refused) {
			a.moved = append(a.moved, refused)
		} else {
			a.err = cmp.Or(a.err, error(refused))
		}
	}
	return a
}

// isMoved says whether a broker did not write a batch because another one leads its partition.
func isMoved(err error) bool {
	switch codeOf(err) {
	case kafka.NotLeaderForPartition, kafka.LeaderNotAvailable:
		return true
	}
	return false
}

// patientProduce is produceTo, again where the transaction before is still being written out. That is said before anything of
// the request is written, or of none of its partitions: it is the transaction that waits. A batch that was written nevertheless
// is known by its sequence.
func (x *transactor) patientProduce(ctx context.Context, leader int32, batches []*outBatch) answer {
	for wait := concurrentGap; ; wait = min(2*wait, retryWait) {
		a := x.produceTo(ctx, leader, batches)
		if codeOf(a.err) != codeConcurrent {
			return a
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return a
		}
	}
}

func (x *transactor) commitOffsets(ctx context.Context, me memberID, cs []*commitment) error {
	return insist(ctx, func() error {
		r, err := x.k.do(ctx, keyTxnOffsetCommit, x.to.version(keyTxnOffsetCommit), txnCommitBody(x.to.id, x.by, x.k.group, me, cs))
		if err != nil {
			return err
		}
		codes, err := readCodes(r)
		if err != nil {
			return err
		}
		var first error
		for _, c := range cs {
			code, ok := codes[c.partitionID]
			if !ok {
				return fmt.Errorf("committing in a transaction: no answer for %s/%d: %w", c.topic, c.no, errShort)
			}
			if err := x.k.check("committing in a transaction", code); err != nil {
				c.err, first = err, err
			}
		}
		return first
	})
}

// end commits the transaction. An error says nothing of what became of it.
func (x *transactor) end(ctx context.Context) error {
	r, err := x.to.ask(ctx, keyEndTxn, endTxnBody(x.to.id, x.by, true))
	if err != nil {
		return err
	}
	next, code, err := readEnd(r, x.to.implicit)
	if err != nil {
		return err
	}
	if err := x.to.check("committing the transaction", code); err != nil {
		return err
	}
	if next != unnamed {
		x.by, x.sequences = next, make(map[partitionID]int32)
	}
	return nil
}

// positions are what is committed of partitions, as the coordinator's are, by no transaction of ours that is under way: it waits
// for that. One that an open transaction may change has the error codeUnstable: that takes as long as the transaction timeout of
// a process that died.
func (x *transactor) positions(ctx context.Context, ps []partitionID) (map[partitionID]position, error) {
	if err := x.enter(ctx); err != nil {
		return nil, err
	}
	x.leave() // what begins now has nothing of what was lost before: see commit
	return x.stable(ctx, ps)
}

func (x *transactor) stable(ctx context.Context, ps []partitionID) (map[partitionID]position, error) {
	r, err := x.k.do(ctx, keyOffsetFetch, txnVersions[keyOffsetFetch], stableBody(x.k.group, ps))
	if err != nil {
		return nil, err
	}
	at, code, err := readPositions(r)
	if err != nil {
		return nil, err
	}
	return at, x.k.check("reading committed offsets", code)
}

// read is stable, once no open transaction can change them any more.
func (x *transactor) read(ctx context.Context, ps []partitionID) (at map[partitionID]position, err error) {
	for {
		at, err := x.stable(ctx, ps)
		if err != nil && codeOf(err) != codeUnstable {
			return nil, err
		}
		unstable := err != nil
		for _, p := range ps {
			unstable = unstable || codeOf(at[p].err) == codeUnstable
			if err := at[p].err; err != nil && codeOf(err) != codeUnstable {
				return nil, err
			}
		}
		if !unstable {
			return at, nil
		}
		if pause(ctx, retryWait/2); ctx.Err() != nil {
			return nil, fmt.Errorf("a transaction that is open may change what is committed: %w", ctx.Err())
		}
	}
}
