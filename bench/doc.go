// Command bench measures longshore beside other systems and prints one line for each figure:
//
//	name value target ok|short
//
// A target is a ratio or a cost against something measured in the same run, so that the machine drops out of it; figures without
// a target ("-") are there to be compared. Each measurement is a process of its own, and the systems take turns, round by round,
// so that what else the machine does hits all of them. A figure is computed within each round; its median over the rounds is
// printed.
//
// It is a module of its own, so that the systems it compares with stay out of longshore's go.mod.
//
// The files: main (turns, medians, output), measure (what one process measures), handoff (pools: no-op and 1 ms), engine
// (consumer on membroker), hooks (the same, with what follows its messages: traces, the page), unhooked (without the hook that
// these need), order (the same, in an order by key), jetstream (consumer on a nats-server in its own process), kafka (consumer
// on an Apache Kafka in its own process), kafkaeos (the same in transactions, beside EOSLoop.java, which is Kafka's own client),
// crowd (thousands of workers there), publish (dead letters and the publish handler, beside producers), downstream (calls that a
// crowd slows down, on a nats-server, and handlers that compute), webhook (posts, beside http.Client), codecs (compressed
// batches, on Apache Kafka), trickle (few messages a second there), growth (many partitions, large messages, and nothing to do
// there), figures (what is computed from the samples, and the targets).
package main
