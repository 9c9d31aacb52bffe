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
// # The files, in the order of a message's life
//
//	config   settings, checked before any connection
//	conn     the connection: TLS, credentials, reconnect for ever
//	durable  the stream and the consumer: create, or compare field by field
//	pull     how much to ask for, and what a pull's answers mean
//	reply    what the reply subject of a delivery says
//	receive  a delivery's way in: redelivered, finished before, or new
//	slots    what is here: the table behind Message.Token
//	headers  the headers as broker.Headers
//	extend   +WPI from receipt, and which leases still hold
//	settle   Ack and Nack, and the writer that sends them
//	finished which messages are done, to ack again what comes again
//	runs     how often a message that was given back has failed here
//	gaps     which messages nobody will ever see
//	lag      how far the consumer is behind, and whether it is still the same one
//	source   Open, Stop, Close
package natsbroker
