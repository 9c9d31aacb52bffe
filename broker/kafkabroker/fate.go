package kafkabroker

import (
	"errors"
	"fmt"

	kafka "github.com/segmentio/kafka-go"
)

// A txnFate is what became of a transaction whose end got no answer.
type txnFate int

const (
	fateAborted   txnFate = iota // nothing of it is stored
	fateCommitted                // all of it is
	fateUntold                   // nobody can tell, and nobody needs to send it again: its messages are gone with their topics
)

// errTopicUnsure says that a topic is not there at the moment, and was perhaps not deleted.
var errTopicUnsure = errors.New("kafkabroker: a broker does not know the topic of a transaction: asking again")

// fateOf tells it by witnesses: commitments of the transaction that were never made before. One whose position is the committed
// one says that all was committed. One whose position is not says that nothing was, but only while its topic is what it was: a
// broker forgets what was committed of a topic that is deleted, and the outputs would be written once more. topics are as the
// coordinator knows them after the positions were read; it deletes positions when it knows that the topic is gone, and not
// before.
//
// No witness at all is a transaction without outputs: to make that again does no harm.
func fateOf(witnesses []*commitment, at map[partitionID]position, topics map[string]topic, isGone func(string) bool) (txnFate,
	error) {
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
		case known && is.err == nil || isGone(w.partitionID.topic):
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
