// Package membroker is a broker in memory: for tests without a network, and for trying longshore out. It passes the same
// conformance suite as the adapters of real brokers, so a test that runs on it instead of on mocks meets the same behaviour:
// redelivery, rebalances, lost leases, settles that come too late.
//
// It acts as Kafka does (partitions that belong to one member of a group, a committed offset), or, with Config.Leased, as
// JetStream does (one stream, a lease for each message).
//
//	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 4}})
//	b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("hello")})
//	source := b.Source(membroker.SourceConfig{Group: "workers"})
//
// There is no I/O, only memory, timers and channels, so it runs inside a testing/synctest bubble, where leases and delays cost no
// time.
//
// docs/testing.md in the repository tests a handler with it, from the first line to the last.
//
// # What can go wrong, on request
//
// Of the broker: [Broker.Down] and [Broker.Up], [Broker.Fail] (opening, receiving, settling, publishing), [Broker.Drop],
// [Broker.Delay], [Broker.Redeliver], [Broker.Revoke], [Broker.Steal], [Broker.Bounce], [Broker.Trim], [Broker.Recreate],
// [Broker.ForgetSettles] and [Broker.ReportLag]. Of one process: [Source.Cut] and [Source.Heal], [Source.Freeze] and
// [Source.Thaw], [Source.Kill].
//
// # What can be seen from outside
//
// [Broker.Unsettled], [Broker.Settled], [Broker.Committed], [Broker.History], [Broker.Messages] and [Broker.Stats] tell what the
// broker has down, not what a source believes.
//
// # Where things are
//
// The broker: config.go has its settings and a source's, broker.go its topics, log.go a partition's or stream's messages,
// group.go who shares the work, balance.go who gets which partition, lease.go the progress on a stream; fault.go makes trouble,
// view.go looks. publisher.go writes to it, and logview.go reads it without a group.
//
// A source is put together in source.go. None of its parts knows it:
//
//	link.go      the connection, and what is wrong with it
//	place.go     the member that the group knows it as
//	holdings.go  what is here: decides about handing out, settling and the end of claims. No I/O, nothing waits
//	holding.go   of one log: prefetch, progress; window.go: what became of each offset; holdinglist.go: some holdings; claim.go: a
//	             claim of one; grant.go: what was handed out of it
//	emit.go      what was emitted with acks, until the broker has it
//	release.go   partitions on their way back to the group; flush.go: settles on their way to it
//	figures.go   the lag
//	loop.go      the goroutine that calls all of these
//
// What an adapter need not write again comes from package kit.
package membroker
