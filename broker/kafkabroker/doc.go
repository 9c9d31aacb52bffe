// Package kafkabroker is the adapter for Apache Kafka, on segmentio/kafka-go's Transport.
//
// A [Source] is a member of a consumer group. It speaks the group protocol, Fetch and OffsetCommit itself, by exchanges of its
// own over the Transport, which keeps routing and connections. What the Transport decodes itself, guard has looked at before:
// no answer claims more than it has bytes for. There is one claim for each partition, from its assignment to its revocation.
// What is committed is the lowest unfinished offset; the finished offsets above it travel in the commit's metadata string, so
// that neither a restart nor a rebalance does them again. After a crash the messages that handlers were at come again, and
// those that were finished since the last commit: see Config.CommitMessages.
//
// A log that was cut off by an unclean election and has grown past our position since then is told by leader epochs: fetches and
// commits have that of the last batch that was looked at (KIP-320, KIP-595). What was written since is handled, and a Gap says
// how many handled messages are gone. The broker has to be Kafka 3.1 or newer for that.
//
// With Config.Transactional commits are transactions, which have what was emitted with the acks, too: see transactor.
//
// The broker has to be Kafka 2.3 or newer, or speak its protocol. A topic that is deleted and made again is told apart from the
// old one where the broker knows topic ids (Kafka 2.8), and nothing of it is handled before where it is fetched by them (3.1).
//
// # Where things are
//
// A Source puts its parts together: holdings decide what is to be done, and have no I/O; the others do it.
//
//	source.go          what others call, and who does it; close.go: its end; describe.go, reads.go: what it says of itself
//	bootstrap.go       the first contact
//	loop.go            lets claims begin and end, tells events
//	beginnings.go      tells of what the group has nothing committed of
//	start.go           a partition that is to begin; starter.go: finds out where; openended.go: when to tell of transactions that
//	                   do not end
//	fetcher.go, committer.go, poller.go   send what was decided; contact.go: what came of it; doubt.go: a commit without an answer
//	membership.go      our part in the group; group.go: its requests; session.go: how long it keeps our place
//	classic.go         where the members make the plans; heartbeats.go; ownership.go: what we have; balancer.go, subscription.go:
//	                   the plans
//	modern.go          where the broker does, talking; member.go: deciding; beat.go: what is said; settings.go: the group's
//	auto.go            which of the two it is; spoken.go: which of them the group speaks; described.go: what a classic one says
//	                   of itself
//	holdings.go        the lock over all that decides, of which the following have none
//	roster.go          which partitions there are; claims.go: how claims begin and end
//	lists.go           partitions by what may be done with them now
//	flights.go         what is fetched next, and how many bytes of each partition; unserved.go: when to tell that nobody has one
//	receive.go         what is handed out
//	settle.go          acks and nacks
//	commits.go         what is committed
//	suspect.go         messages that run alone, for a process may have died of them (Config.CrashLimit)
//	part.go            one partition; offsets.go, book.go: its messages; metadata.go: as a commit has them
//	prefetch.go        what was fetched of it and is not handed out yet
//	shared.go          what partitions share
//	atlas.go           how topics are laid out; topics.go: which of them are read
//	bells.go           wake the loop and the fetcher when there is something for them
//	exchange.go        one request and its answer; arrival.go: one that takes long to arrive; wire.go, headers.go, fetch.go,
//	                   bounds.go, batch.go, codec.go: their bytes;
//	                   guard.go: what kafka-go is to decode, looked at before; features.go: what the cluster has agreed on;
//	                   codes.go: what is refused; throttle.go: what a quota lets wait
//	config.go          settings; dial.go: the connection; login.go: SASL; discovery.go: which brokers the Transport knows
//	publisher.go       writes messages; create.go, admin.go: topics; leaders.go: where to; sender.go: what goes to one broker, by
//	                   produce.go; pace.go: how much at a time; partitioner.go: to which partition
//	emit.go            what is emitted with acks; outputs.go: until it is stored
//	transactor.go      stores it together with what is committed; transaction.go: its states; fate.go: what became of one;
//	                   stuck.go: one that cannot end; leftovers.go: one that was aborted and may be open; destinations.go: the
//	                   topics that it goes to; demands.go: what they refuse; txncoordinator.go: who keeps the transactional
//	                   id; txnrequests.go: what is said
//	lagview.go         what others look at: lag; logview.go: letters; persist.go: while a broker is away for a moment
package kafkabroker
