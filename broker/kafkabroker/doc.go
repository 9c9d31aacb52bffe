// Package kafkabroker is the adapter for Apache Kafka, on segmentio/kafka-go's Transport.
//
// A [Source] is a member of a consumer group. It speaks the group protocol, Fetch and OffsetCommit itself, by exchanges of its
// own over the Transport, which keeps routing and connections. What the Transport decodes itself, guard has looked at before:
// no answer claims more than it has bytes for. There is one claim for each partition, from its assignment to its revocation.
// What is committed is the lowest unfinished offset; the finished offsets above it travel in the commit's metadata string, so
// that neither a restart nor a rebalance does them again. After a crash the messages that handlers were at come again, and
// those that were finished since the last commit: see Config.CommitMessages.
//
// A log that was cut off by an unclean election and has grown past our position since then cannot be told from one that was not:
// the positions carry no leader epochs.
//
// With Config.Transactional commits are transactions, which have what was emitted with the acks, too: see transactor.
//
// The broker has to be Kafka 2.3 or newer, or speak its protocol. A topic that is deleted and made again is told apart from the
// old one where the broker knows topic ids (Kafka 3.1).
//
// # Where things are
//
// A Source puts its parts together: holdings decide what is to be done, and have no I/O; the others do it.
//
//	source close        what others call, and who does it
//	bootstrap           the first contact
//	loop                lets claims begin and end, tells events
//	start               finds out where a partition begins
//	fetcher committer poller   send what was decided; contact: what came of it
//	membership group    our part in the group; session: how long it keeps our place
//	  classic heartbeats  where its members make the plans; ownership: what we have; balancer, subscription: plans
//	  modern member beat  where the broker assigns partitions: talking, deciding, what is said; settings: the group's
//	  auto                which of the two it is
//	holdings            the lock over all that decides:
//	  roster claims       which partitions there are, how claims begin and end
//	  lists               them by what may be done with them now
//	  flights             what is fetched next, and how many bytes of each partition
//	  receive             what is handed out
//	  settle              acks and nacks
//	  commits             what is committed
//	  suspect             messages that run alone, for a process may have died of them (Config.CrashLimit)
//	  part offsets metadata book   one partition: position, messages, commits
//	  prefetch            what was fetched of it and is not handed out yet
//	  shared              what partitions share
//	atlas topics        how topics are laid out
//	bells               wake the loop and the fetcher when there is something for them
//	exchange wire fetch bounds batch codec guard headers   the protocol
//	config dial login   settings; the connection; SASL
//	publisher create admin   what is written: messages, topics; leaders: where to; sender: what goes to one broker, by produce
//	emit outputs        what is emitted with acks, until it is stored
//	transactor          stores it together with what is committed; transaction: its states; fate: what became of one;
//	                    txnrequests, produce: its requests
//	lagview logview     what others look at: lag, letters
package kafkabroker
