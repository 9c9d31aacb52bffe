package kafkabroker

import (
	"time"
)

// The requests of a transaction.
const (
	keyInitProducerID     = 22
	keyAddPartitionsToTxn = 24
	keyAddOffsetsToTxn    = 25
	keyEndTxn             = 26
	keyTxnOffsetCommit    = 28

	keyDescribeTransactions = 65
)

// txnVersions are what is written here: what brokers speak since Kafka 2.5.
var txnVersions = map[int16]int16{
	keyProduce: produceVersion, keyInitProducerID: 2, keyAddPartitionsToTxn: 3, keyAddOffsetsToTxn: 3, keyEndTxn: 3,
	keyTxnOffsetCommit: 3,
	keyOffsetFetch:     7, keyDescribeTransactions: 0,
}

// implicitVersions are those of transaction version 2 (KIP-890): Produce and TxnOffsetCommit make partitions and group part of
// the transaction, and EndTxn tells under which epoch the next one is, so that no request of this one can come to be part of
// that.
var implicitVersions = map[int16]int16{keyProduce: 12, keyTxnOffsetCommit: 5, keyEndTxn: 5}

// transactionFeature is what a cluster agrees on to have them.
const transactionFeature = "transaction.version"

func initProducerBody(transaction string, timeout time.Duration) []byte {
	w := writer{flexible: true}
	w.str(transaction)
	w.i32(int32(timeout.Milliseconds()))
	w.tags()
	return w.b
}

func readProducer(r *reader) (by producer, code int16, err error) {
	r.i32()
	code = r.i16()
	by = producer{r.i64(), r.i16()}
	r.tags()
	return by, code, r.err()
}

// begin writes what each request of a transaction begins with.
func (by producer) begin(transaction string) *writer {
	w := &writer{flexible: true}
	w.str(transaction)
	w.i64(by.id)
	w.i16(by.epoch)
	return w
}

func addPartitionsBody(transaction string, by producer, ps []partitionID) []byte {
	w := by.begin(transaction)
	w.partitions(ps, w.number)
	w.tags()
	return w.b
}

func addOffsetsBody(transaction string, by producer, group string) []byte {
	w := by.begin(transaction)
	w.str(group)
	w.tags()
	return w.b
}

// txnCommitBody is fenced twice: by the producer's epoch, and by who we are in the group (KIP-447).
func txnCommitBody(transaction string, by producer, group string, me memberID, cs []*commitment) []byte {
	w := &writer{flexible: true}
	w.str(transaction)
	w.str(group)
	w.i64(by.id)
	w.i16(by.epoch)
	me.write(w)
	w.commitments(cs)
	w.tags()
	return w.b
}

func endTxnBody(transaction string, by producer, commit bool) []byte {
	w := by.begin(transaction)
	w.bool(commit)
	w.tags()
	return w.b
}

// stableBody asks for committed offsets, and for an error where a transaction that is open may change them.
func stableBody(group string, ps []partitionID) []byte {
	w := &writer{flexible: true}
	w.str(group)
	w.partitions(ps, w.number)
	w.bool(true)
	w.tags()
	return w.b
}

// readEnd reads what EndTxn says, and in transaction version 2 who the producer is from then on.
func readEnd(r *reader, implicit bool) (next producer, code int16, err error) {
	r.i32() // throttle time
	code = r.i16()
	if next = unnamed; implicit {
		next = producer{r.i64(), r.i16()}
	}
	r.tags()
	return next, code, r.err()
}
