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

// txnVersions are what is written here: what brokers speak since Kafka 2.8, and since 2.5 but for olderVersions.
var txnVersions = map[int16]int16{
	keyProduce: produceVersion, keyInitProducerID: 2, keyAddPartitionsToTxn: 3, keyAddOffsetsToTxn: 3, keyEndTxn: 3,
	keyTxnOffsetCommit: 3,
	keyOffsetFetch:     7, keyDescribeTransactions: 0,
}

// olderVersions are what brokers before Kafka 2.8 speak of some. They have the same fields.
var olderVersions = map[int16]int16{keyAddPartitionsToTxn: 1, keyAddOffsetsToTxn: 1, keyEndTxn: 1}

// implicitVersions are those of transaction version 2 (KIP-890): Produce and TxnOffsetCommit make partitions and group part of
// the transaction, and EndTxn tells under which epoch the next one is, so that no request of this one can come to be part of
// that.
var implicitVersions = map[int16]int16{keyProduce: 12, keyTxnOffsetCommit: 5, keyEndTxn: 5}

// transactionFeature is what a cluster agrees on to have them.
const transactionFeature = "transaction.version"

// A txnBody writes a request to a transaction's coordinator, in the encoding of its version.
type txnBody func(w *writer)

func initProducerBody(transaction string, timeout time.Duration) txnBody {
	return func(w *writer) {
		w.str(transaction)
		w.i32(int32(timeout.Milliseconds()))
		w.tags()
	}
}

func readProducer(r *reader) (by producer, code int16, err error) {
	r.i32()
	code = r.i16()
	by = producer{r.i64(), r.i16()}
	r.tags()
	return by, code, r.err()
}

// begin writes what each request of a transaction begins with.
func (by producer) begin(w *writer, transaction string) {
	w.str(transaction)
	w.i64(by.id)
	w.i16(by.epoch)
}

func addPartitionsBody(transaction string, by producer, ps []partitionID) txnBody {
	return func(w *writer) {
		by.begin(w, transaction)
		w.partitions(ps, w.number)
		w.tags()
	}
}

func addOffsetsBody(transaction string, by producer, group string) txnBody {
	return func(w *writer) {
		by.begin(w, transaction)
		w.str(group)
		w.tags()
	}
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

func endTxnBody(transaction string, by producer, commit bool) txnBody {
	return func(w *writer) {
		by.begin(w, transaction)
		w.bool(commit)
		w.tags()
	}
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
