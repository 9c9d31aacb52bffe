package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// A transactor writes outputs and committed offsets in transactions, one at a time: see txnPhase. Each is a round of a few
// exchanges, so that it has as much as was finished since the last one.
type transactor struct {
	c       *cluster
	k       *coordinator // of the group
	id      string       // transactional.id
	timeout time.Duration

	turn      chan struct{} // full: a transaction is under way, or resolved. All but positions is the committer's.
	phase     txnPhase
	by        producer
	implicit  bool // it speaks transaction version 2: see implicitVersions
	sequences map[partitionID]int32
	node      int32 // of the transaction's coordinator
	found     bool

	layouts  map[string]topic
	layoutAt time.Time
	blocks   map[string]*block // topics that cannot be written
	plain    map[string]bool   // topics that are written without compression; nil: all are
}

// A block is a topic that could not be written: nothing is sent there until a time.
type block struct {
	until time.Time
	wait  time.Duration
}

const (
	layoutAge     = 5 * time.Second
	firstBlock    = 200 * time.Millisecond
	longestBlock  = 10 * time.Second
	concurrentGap = 2 * time.Millisecond // between tries while the last transaction is being written out
)

var (
	// errUnclear: EndTxn got no answer. What became of the transaction is to be found out: resolve.
	errUnclear = errors.New("kafkabroker: nobody knows whether the transaction was committed")
	// errNotOurs: a partition was lost before the transaction began.
	errNotOurs = errors.New("kafkabroker: a partition of the transaction was lost")
	// errAborted is the answer to a commitment that was all right, in a transaction that was not.
	errAborted = errors.New("kafkabroker: the transaction was aborted")
)

// An outputError says that topics cannot be written at the moment. They are blocked for a while.
type outputError struct {
	topic string
	first bool // it was not blocked before
	err   error
}

func (e *outputError) Error() string {
	return fmt.Sprintf("outputs to topic %s wait: %v", e.topic, e.err)
}
func (e *outputError) Unwrap() error { return e.err }

func newTransactor(k *coordinator, cfg *Config) *transactor {
	x := &transactor{c: k.c, k: k, id: cfg.transactionalID(), timeout: cfg.TransactionTimeout, blocks: make(map[string]*block),
		turn: make(chan struct{}, 1)}
	if cfg.Compression == "snappy" {
		x.plain = make(map[string]bool)
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

// blocked says of topics whether they wait; nil: none does, as nearly always.
func (x *transactor) blocked() func(topic string) bool {
	waiting, now := make(map[string]bool), time.Now()
	for topic, b := range x.blocks {
		if now.Before(b.until) {
			waiting[topic] = true
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return func(topic string) bool { return waiting[topic] }
}

func (x *transactor) block(topic string, err error) error {
	b := x.blocks[topic]
	first := b == nil
	if first {
		b = &block{wait: firstBlock}
		x.blocks[topic] = b
	}
	b.until = time.Now().Add(b.wait)
	b.wait = min(2*b.wait, longestBlock)
	x.layoutAt = time.Time{}
	return &outputError{topic, first, err}
}

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
	if err := x.name(ctx); err != nil {
		return err
	}
	rounds, err := x.plan(ctx, outs)
	if err != nil {
		return err
	}
	x.phase = x.phase.after(txnBegun)
	if err := x.write(ctx, by, rounds); err != nil {
		x.phase = x.phase.after(txnFailed)
		return err
	}
	if err := x.end(ctx); err != nil {
		x.phase = x.phase.after(txnUnanswered)
		return fmt.Errorf("%w: %w", errUnclear, err)
	}
	x.phase = x.phase.after(txnEnded)
	x.written(outs)
	all(nil)
	return nil
}

// written lifts the blocks of the topics.
func (x *transactor) written(outs []*broker.Outgoing) {
	for i := 0; i < len(outs) && len(x.blocks) > 0; i++ {
		delete(x.blocks, outs[i].Topic)
	}
}

// resolve finds out what became of a transaction whose end got no answer. witnesses are commitments of it that were never made
// before: with outputs there is always one, for what was finished has grown. Where somebody else has a partition by now, and
// has committed there, it is not ours to ask about any more; nobody needs the answer then. isGone says of topics whether they
// were deleted.
func (x *transactor) resolve(ctx context.Context, witnesses []*commitment, isGone func(topic string) bool) (txnFate, error) {
	if err := x.enter(ctx); err != nil {
		return fateAborted, err
	}
	defer x.leave()
	if err := x.name(ctx); err != nil || !x.phase.isOpenQuestion() {
		return fateAborted, err
	}
	ps, names := make([]partitionID, len(witnesses)), make([]string, 0, 1)
	for i, w := range witnesses {
		ps[i] = w.partitionID
		if !slices.Contains(names, w.partitionID.topic) {
			names = append(names, w.partitionID.topic)
		}
	}
	var at map[partitionID]position
	var topics map[string]topic
	if len(ps) > 0 {
		var err error
		if at, err = x.read(ctx, ps); err != nil {
			return fateAborted, err
		}
		if topics, err = x.k.topics(ctx, names); err != nil {
			return fateAborted, err
		}
	}
	f, err := fateOf(witnesses, at, topics, isGone)
	if err == nil {
		x.phase = x.phase.after(txnTold)
	}
	return f, err
}

// abandon aborts what is open, as far as that takes no longer than ctx.
func (x *transactor) abandon(ctx context.Context) {
	if x.phase == txnBroken {
		_ = x.name(ctx)
	}
}

// name gets a producer id, where the phase wants one.
func (x *transactor) name(ctx context.Context) error {
	if !x.phase.needsName() {
		return nil
	}
	return x.insist(ctx, func() error {
		implicit, err := x.agreed(ctx)
		if err != nil {
			return err
		}
		r, err := x.ask(ctx, keyInitProducerID, initProducerBody(x.id, x.timeout))
		if err != nil {
			return err
		}
		by, code, err := readProducer(r)
		if err != nil {
			return err
		}
		if err := x.check("getting a producer id", code); err != nil {
			return err
		}
		x.by, x.sequences, x.implicit = by, make(map[partitionID]int32), implicit
		x.phase = x.phase.after(txnNamed)
		return nil
	})
}

// agreed says whether the cluster has agreed on transaction version 2. One that agrees on it later takes both.
func (x *transactor) agreed(ctx context.Context) (bool, error) {
	node, err := x.find(ctx)
	if err != nil {
		return false, err
	}
	vs, err := x.c.ask(ctx, node)
	if err != nil {
		x.found = false
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
	level, err := x.c.feature(ctx, node, transactionFeature)
	if err != nil {
		x.found = false
	}
	return level >= 2, err
}

// version is that of a request of the transaction.
func (x *transactor) version(key int16) int16 {
	if v, ok := implicitVersions[key]; ok && x.implicit {
		return v
	}
	return txnVersions[key]
}

// insist tries again while the coordinator is busy with the last transaction, or is not there yet.
func (x *transactor) insist(ctx context.Context, do func() error) error {
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

const (
	codeConcurrent = kafka.Error(51) // CONCURRENT_TRANSACTIONS
	codeUnstable   = kafka.Error(88) // UNSTABLE_OFFSET_COMMIT
)

// ask sends a request to the transaction's coordinator.
func (x *transactor) ask(ctx context.Context, key int16, body []byte) (*reader, error) {
	node, err := x.find(ctx)
	if err != nil {
		return nil, err
	}
	version := x.version(key)
	if _, err := x.c.pick(ctx, node, key, version); err != nil {
		x.found = false
		return nil, err
	}
	r, err := x.c.do(ctx, node, key, version, body)
	if err != nil {
		x.found = false
	}
	return r, err
}

func (x *transactor) find(ctx context.Context) (int32, error) {
	if x.found {
		return x.node, nil
	}
	w := writer{}
	w.str(x.id)
	w.i8(1) // of a transaction
	r, err := x.c.do(ctx, anyNode, keyFindCoordinator, 1, w.b)
	if err != nil {
		return 0, err
	}
	node, err := readCoordinator(r)
	if err != nil {
		return 0, fmt.Errorf("finding the transaction's coordinator: %w", err)
	}
	x.node, x.found = node, true
	return node, nil
}

// check turns a code of the transaction's coordinator into an error.
func (x *transactor) check(what string, code int16) error {
	err := codeErr(code)
	switch codeOf(err) {
	case kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup:
		x.found = false
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// plan says which batches go to whom. An *outputError says that a topic cannot be written; nothing was sent then.
func (x *transactor) plan(ctx context.Context, outs []*broker.Outgoing) ([][]*outBatch, error) {
	if len(outs) == 0 {
		return nil, nil
	}
	var names []string
	for i := range outs {
		if !slices.Contains(names, outs[i].Topic) {
			names = append(names, outs[i].Topic)
		}
	}
	known := func(name string) bool { return len(x.layouts[name].leaders) > 0 && x.layouts[name].err == nil }
	if time.Since(x.layoutAt) > layoutAge || slices.ContainsFunc(names, func(name string) bool { return !known(name) }) {
		layouts, err := x.c.topics(ctx, names)
		if err != nil {
			return nil, err
		}
		x.layouts, x.layoutAt = layouts, time.Now()
	}
	for _, name := range names {
		if !known(name) {
			err := x.layouts[name].err
			if err == nil {
				err = kafka.UnknownTopicOrPartition
			}
			return nil, x.block(name, err)
		}
	}
	rounds := batchesOf(outs, x.layouts)
	for _, b := range slices.Concat(rounds...) {
		if b.leader < 0 {
			return nil, x.block(b.topic, kafka.LeaderNotAvailable)
		}
	}
	return rounds, nil
}

// write sends all of a transaction but its end, one after the other. What would be saved by sending the offsets beside the
// outputs is lost again: a broker asks the transaction's coordinator at the first batch of a partition, and at the first offset,
// whether it belongs to the transaction, and where it would ask twice at a time it refuses one of them (NOT_ENOUGH_REPLICAS).
func (x *transactor) write(ctx context.Context, by map[memberID][]*commitment, rounds [][]*outBatch) error {
	if len(rounds) > 0 {
		if err := x.addPartitions(ctx, rounds[0]); err != nil {
			return err
		}
		if err := x.produceAll(ctx, rounds); err != nil {
			return err
		}
	}
	if err := x.addGroup(ctx); err != nil {
		return err
	}
	for me, cs := range by {
		if err := x.commitOffsets(ctx, me, cs); err != nil {
			return err
		}
	}
	return nil
}

func (x *transactor) addGroup(ctx context.Context) error {
	if x.implicit {
		return nil
	}
	return x.insist(ctx, func() error {
		r, err := x.ask(ctx, keyAddOffsetsToTxn, addOffsetsBody(x.id, x.by, x.k.group))
		if err != nil {
			return err
		}
		return x.checkAnswer("adding the group to the transaction", r)
	})
}

func (x *transactor) addPartitions(ctx context.Context, batches []*outBatch) error {
	if x.implicit {
		return nil
	}
	ps := make([]partitionID, len(batches))
	for i, b := range batches {
		ps[i] = b.partitionID
	}
	return x.insist(ctx, func() error {
		r, err := x.ask(ctx, keyAddPartitionsToTxn, addPartitionsBody(x.id, x.by, ps))
		if err != nil {
			return err
		}
		codes, err := readCodes(r)
		if err != nil {
			return err
		}
		var other error
		for _, p := range ps {
			err := x.check("adding a partition to the transaction", codes[p])
			switch codeOf(err) {
			case 0, codeNotAttempted:
			case kafka.UnknownTopicOrPartition, kafka.TopicAuthorizationFailed, kafka.InvalidTopic:
				return x.block(p.topic, err) // the others say that they were not attempted
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
		if err := x.produced(answers); err != nil {
			return err
		}
		for _, b := range round {
			b.spare()
		}
	}
	return nil
}

// seal completes the batches of a round, and sorts them by their leaders.
func (x *transactor) seal(round []*outBatch) map[int32]map[partitionID][]byte {
	by := make(map[int32]map[partitionID][]byte)
	now := time.Now()
	for _, b := range round {
		if by[b.leader] == nil {
			by[b.leader] = make(map[partitionID][]byte)
		}
		if x.plain != nil && !x.plain[b.topic] {
			b.squeeze()
		}
		by[b.leader][b.partitionID] = b.encode(x.by, x.sequences[b.partitionID], now)
		x.sequences[b.partitionID] += int32(b.n)
	}
	return by
}

// produce sends a round to all leaders beside each other. So many answers come as there are leaders.
func (x *transactor) produce(ctx context.Context, by map[int32]map[partitionID][]byte) (answers []chan error) {
	for leader, parts := range by {
		answer := make(chan error, 1)
		go func() { answer <- x.patientProduce(ctx, leader, parts) }()
		answers = append(answers, answer)
	}
	return answers
}

// produced waits for all answers to a round. Its error is the first one.
func (x *transactor) produced(answers []chan error) (first error) {
	for _, answer := range answers {
		var refused *producedError
		err := <-answer
		if errors.As(err, &refused) {
			if x.plain != nil && refusesCompressed(refused.err) {
				x.plain[refused.topic] = true
			}
			err = x.block(refused.topic, refused.err)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// refusesCompressed says whether an answer may come of a broker that cannot read, or does not want, what is compressed. Where it
// came of something else, to go on without costs little.
func refusesCompressed(err error) bool {
	switch codeOf(err) {
	case kafka.UnsupportedCompressionType, kafka.InvalidMessage, kafka.InvalidRecord, kafka.Unknown:
		return true
	}
	return false
}

// A producedError says which topic a leader did not write to.
type producedError struct {
	topic string
	err   error
}

func (e *producedError) Error() string { return e.err.Error() }
func (e *producedError) Unwrap() error { return e.err }

func (x *transactor) produceTo(ctx context.Context, leader int32, batches map[partitionID][]byte) error {
	var some string
	for p := range batches {
		some = p.topic
	}
	version := x.version(keyProduce)
	body, chunks := produceBody(version, x.id, x.c.timeout, batches)
	r, err := x.c.produce(ctx, leader, version, body, chunks)
	if err != nil {
		return &producedError{some, err}
	}
	said, err := readProduced(r)
	if err != nil {
		return err
	}
	for p := range batches {
		if of, ok := said[p]; !ok || of.code != 0 {
			return &producedError{p.topic, fmt.Errorf("%s/%d: %w", p.topic, p.no, codeErr(max(of.code, -1)))}
		}
	}
	return nil
}

// patientProduce is produceTo, again where the transaction before is still being written out. That is said before anything of
// the request is written, or of none of its partitions: it is the transaction that waits. A batch that was written nevertheless
// is known by its sequence.
func (x *transactor) patientProduce(ctx context.Context, leader int32, batches map[partitionID][]byte) error {
	for wait := concurrentGap; ; wait = min(2*wait, retryWait) {
		err := x.produceTo(ctx, leader, batches)
		if codeOf(err) != codeConcurrent {
			return err
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return err
		}
	}
}

func (x *transactor) commitOffsets(ctx context.Context, me memberID, cs []*commitment) error {
	return x.insist(ctx, func() error {
		r, err := x.k.do(ctx, keyTxnOffsetCommit, x.version(keyTxnOffsetCommit), txnCommitBody(x.id, x.by, x.k.group, me, cs))
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

func (x *transactor) end(ctx context.Context) error {
	r, err := x.ask(ctx, keyEndTxn, endTxnBody(x.id, x.by, true))
	if err != nil {
		return err
	}
	next, code, err := readEnd(r, x.implicit)
	if err != nil {
		return err
	}
	if err := x.check("committing the transaction", code); err != nil {
		return err
	}
	if next != unnamed {
		x.by, x.sequences = next, make(map[partitionID]int32)
	}
	return nil
}

// checkAnswer is check of an answer that is a throttle time and a code.
func (x *transactor) checkAnswer(what string, r *reader) error {
	r.i32()
	code := r.i16()
	if err := r.err(); err != nil {
		return err
	}
	return x.check(what, code)
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
