// Package natsbroker is longshore's adapter for NATS: a [Source] on a durable JetStream pull consumer, a [CoreSource] on a core
// NATS queue group (at most once, and it says so), and a [Publisher] whose publishes JetStream has confirmed.
//
// # Why not Consume or Messages
//
// The Source sends its own pull requests. A message is registered when it arrives, not when it is asked for, so that its ack
// timer can be extended from receipt; requests are sent only for free budget, in messages and bytes; a lost request is noticed by
// the missing heartbeat; and what was prefetched and never handed out goes back at Stop. nats.go's iterators keep a hidden buffer
// in which the ack timer runs out, and drop it at Stop.
//
// # One process at a time, for an order
//
// With broker.Options.Ordered the consumer is created with a priority group (nats-server 2.11): the server pins one process at a
// time and gives it all messages, and the others stand by. A pin says who gets the next message, and not what became of those
// that the process before has. So whoever is pinned gathers: it hands out nothing until all that the server counts as unsettled
// is here. A claim is then one process's turn, and a process that stands by has none. Traits.Ordered says whether the consumer
// has the group; one from before has not, which is warned of, and then the order holds within each process.
//
// # The parts, in the order of a message's life
//
// A Source is put together from parts. Those that decide do no I/O and wait for nothing; those that do have none of the others'
// state.
//
//	config.go        settings, checked before any connection
//	conn.go          the connection: reconnect for ever; wire.go: its socket; login.go: who we are there, and whom we trust, by
//	                 TLS; refused.go: what the server refuses, and perhaps takes later
//	durable.go       the stream and the consumer: create, or compare field by field; remote.go asks about them
//	source.go        what it is put together from; life.go: Open and Close; describe.go, reads.go: what it says of itself
//
// What decides, without a lock, and the lock around it:
//
//	holdings.go      the stock behind its lock, one step at a time; leaseside.go, pinside.go, pullside.go, watchside.go: what a
//	                 doer sees of it
//	stock.go         a delivery's way in: redelivered, finished before, not due, or new; and its way out to the engine; flow.go:
//	                 whether both are open
//	settle.go        ack and nack; lastdelivery.go: what the server delivers no more
//	session.go       one claim on one consumer
//	slots.go         what is here: the table behind Message.Token
//	pull.go          how much to ask for, and what an answer means; pulls.go: by which inbox, and when; pullmeter.go: how long it
//	                 took; quiet.go: what it means that no answer comes
//	pin.go, turn.go  whose turn it is, and what is missing at its beginning; balance.go, removed.go: what is here and not counted
//	leases.go        which leases certainly hold; clock.go: by which time
//	memory.go        what is remembered of those that are gone: finished.go, to ack again what comes again; runs.go: how often
//	                 those given back have failed
//	gaps.go          which messages nobody will ever see; subject.go: whether a filter leaves something out
//	lag.go           how far the consumer is behind
//	reply.go         what the reply subject of a delivery says; headers.go, key.go: the rest of it
//	waiter.go        Receive, where it waits; seldom.go: what is told once a minute at most
//	peers.go         which processes read the consumer, for limits that they share
//	nobody.go        that what is sent to a consumer which is there finds nobody
//	outbox.go        what has yet to be said to the server, with a lock of its own
//	ackwindow.go     what was said and may have to be said again; nakked.go: what is never said again
//
// What does it:
//
//	leasekeeper.go   extends leases from receipt, and makes contact
//	puller.go        asks for messages, and says how long the server keeps a request
//	pinner.go        keeps the pin, and gathers
//	presence.go      tells the other processes that this one is there
//	watcher.go       looks whether the consumer is still the same one, and begins sessions; voucher.go: the same over each new
//	                 connection; witness.go: whether the stream has lost its end
//	outboxwriter.go  writes acks and naks; receipt.go: whether an ack was taken
//	closer.go        waits until all that is with the server
//
// core.go is put together in the same way, from corestock.go and coregroup.go. These stand by themselves: publisher.go with
// confirm.go and destinations.go; lagview.go; logview.go with lookahead.go.
//
// # What cannot be known
//
// Gaps are counted exactly while one process, or the replica that sees both sides of a gap, follows the consumer; also those that
// a limit of the stream made while nobody was there, of messages never delivered. A message that was given back and is discarded
// before it comes again, the server counts as settled; it is not noticed. A purge while nobody was there moves the consumer's own
// position, so that nothing is left to compare; and with a filter that leaves out a subject of the stream, on a mirror, with a
// filter on a stream that has others for its sources, or transforms subjects, or on a stream that keeps only the last messages of
// a subject, sequences are missing by design. Where a stream had holes when the consumer was made, those that were made since
// then, before messages that are older than the consumer, are not told from them. In these cases nothing is told. Of a stream
// that took other subjects before, what it has of them is told as gone where a filter takes all that it takes now; and so is what
// an edited one takes, or stores under, other subjects, or replaces, until it is looked at again, at each fifth Poll.
//
// nats.go keeps a message's headers in a map. They are handed out in the message's order, but published in no order, except those
// with the same key.
package natsbroker
