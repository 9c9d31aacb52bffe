// Package kafkabroker is the adapter for Apache Kafka, on segmentio/kafka-go's Transport.
//
// A [Source] is a member of a consumer group. It speaks the group protocol, Fetch and OffsetCommit itself, by exchanges of its
// own over the Transport, which keeps routing and connections. What the Transport itself reads is held against its bytes before.
// There is one claim for each partition, from its assignment to its revocation. What is committed is the lowest unfinished
// offset; the finished offsets above it travel in the commit's metadata string, so that neither a restart nor a rebalance does
// them again. After a crash come again what handlers were at, and what was finished since the last commit: see
// Config.CommitMessages.
//
// A log that was cut off by an unclean election and has grown past our position since then cannot be told from one that was not:
// the positions carry no leader epochs.
//
// The broker has to be Kafka 2.3 or newer, or speak its protocol. A topic that is deleted and made again is told apart from the
// old one where the broker knows topic ids (Kafka 3.1).
package kafkabroker
