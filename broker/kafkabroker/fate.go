package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	kafka "github.com/segmentio/kafka-go"
)

// A txnFate is what became of a transaction whose end got no answer.
type txnFate int

const (
	fateAborted   txnFate = iota // nothing of it is stored
	fateCommitted                // all of it is
	fateUntold                   // nobody can tell, and nobody needs to send it again: its messages are gone with their topics
)

// errTopicUnsure says that a broker does not know a topic, or another one of its name, and we do not know that it was deleted.
var errTopicUnsure = errors.New("kafkabroker: a broker does not know the topic of a transaction: asking again")

// fateOf tells it by witnesses: commitments of the transaction that were never made before. One whose position is the committed
// one says that all was committed. One whose position is not says that nothing was, but only while its topic is what it was: a
// broker forgets what was committed of a topic that is deleted, and the outputs would be written once more. topics are as the
// coordinator knows them after the positions were read; it deletes positions when it knows that the topic is gone, and not
// before. isGone is what our own looks say: a coordinator that is behind the others tells of a topic that was there before.
//
// No witness at all is a transaction without outputs: to make that again does no harm.
func fateOf(witnesses []*commitment, at map[partitionID]position, topics map[string]topic,
	isGone func(partitionID, topicID) bool) (txnFate, error) {
	alive, unsure := 0, ""
	for _, w := range witnesses {
		pos := at[w.partitionID]
		if pos.after = 0; pos == w.position() {
			return fateCommitted, nil
		}
		is, known := topics[w.partitionID.topic]
		switch {
		case w.topic == (topicID{}), known && is.err == nil && is.id == w.topic:
			alive++
		case isGone(w.partitionID, w.topic):
		default:
			unsure = w.partitionID.topic
		}
	}
	switch {
	case alive > 0 || len(witnesses) == 0:
		return fateAborted, nil
	case unsure != "":
		return fateAborted, fmt.Errorf("%w: %s: %w", errTopicUnsure, unsure, kafka.UnknownTopicOrPartition)
	}
	return fateUntold, nil
}

// resolve finds out what became of a transaction whose end got no answer, and asks for it once more first: see txnPhase.
// witnesses are commitments of it that were never made before: with outputs there is always one, for what was finished has
// grown. isGone says whether the log of a partition is gone. With an *outputError it is known all the same, and the topics wait
// for its end.
func (x *transactor) resolve(ctx context.Context, witnesses []*commitment, isGone func(partitionID, topicID) bool) (txnFate,
	error) {
	if err := x.enter(ctx); err != nil {
		return fateAborted, err
	}
	defer x.leave()
	if x.phase == txnUnclear {
		if committed, err := x.endAgain(ctx); err != nil || committed {
			return fateCommitted, err
		}
	}
	if err := x.nameOrEvade(ctx); hasEvaded(err) {
		x.evaded = err // told when the fate is known: what is read now may fail, and is asked for again under the new id
	} else if err != nil {
		return fateAborted, err
	}
	if !x.phase.isOpenQuestion() {
		return fateAborted, x.evasion()
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
	if err != nil {
		return f, err
	}
	x.phase = x.phase.after(txnTold)
	if f != fateAborted {
		x.left.committed()
	}
	return f, x.evasion()
}

// evasion is what nobody was told of yet.
func (x *transactor) evasion() error {
	err := x.evaded
	x.evaded = nil
	return err
}

// endAgain says whether the transaction is committed by now. false: the coordinator refuses that for good, whatever for. With an
// *outputError it is, and its end cannot be written.
func (x *transactor) endAgain(ctx context.Context) (committed bool, err error) {
	busy, err := x.halfway(ctx, func() error { return x.end(ctx) })
	switch code := codeOf(err); {
	case busy != nil:
		return x.endElsewhere(ctx, busy)
	case err == nil:
		x.phase = x.phase.after(txnConfirmed)
		x.left.committed()
		return true, nil
	case code == 0, code == codeConcurrent, code.Temporary():
		return false, err
	}
	return false, nil
}
