// Package redisbroker reads Redis Streams by a consumer group: an example of an adapter on package kit, outside of longshore's
// module. It passes package brokertest, and is not part of the product. It wants Redis 7 or Valkey.
//
// # What is what
//
//	topic       a stream; its entries are messages, see codec.go
//	claim       one for each stream, from Open, or from the group's being made anew, to Close, or to its being gone
//	lease       the time since an entry of the group's pending list was last claimed. Redis has no lease of its own: processes
//	            agree on Config.Lease, and take from each other what was idle for that long
//	extension   XCLAIM by who has the entry already
//	ack         XACK. It does not ask who has the entry, so a late one is of use, too
//	give-back   XCLAIM for the consumer "~", which nobody is. Redis keeps no delay, so the engine does
//	attempt     the entry's count of deliveries, an upper bound
//
// # Who does what
//
//	source.go   puts the parts together; Receive asks, and begins and ends claims
//	stock.go    streams and their claims: which may be asked, and what is out. It decides, under its lock, and does no I/O
//	sender.go   sends acks and give-backs, and at Close the last of them
//	keeper.go   extends leases, asks for the lag
//	script.go   what runs at the server, as one step
//
// The stock stands on kit's Gate, Pauses and Deliveries, which keep the table of what is here; the sender on its Bell; the source
// on Life, EventQueue and Retry; the publisher on Publishing and Retry. There is no prefetch: the server is near, and what is not
// asked for needs no lease.
package redisbroker
