// Package sim runs whole consumers, engine and adapter, in virtual time (testing/synctest) under faults that a seed chooses,
// and keeps account of every message. A minute of a group's life takes some milliseconds, so one night sees more rebalances,
// cuts and kills than years of use.
//
// # How it hangs together
//
//	seed ──Plan──▶ Schedule ──Run──▶ Result: findings, with what happened
//	                  ▲                  │
//	                  └──── Shrink ◀─────┘  fewer faults, messages, processes, tried again and again
//
// A [Schedule] says all that is done: sizes, settings, how handlers act, and [Step]s, each with messages and a [Fault]. [Run]
// carries it out in a bubble: its processes are consumers whose sources come from a [World], which is one kind of broker. When
// the last fault is over it is calm: all is mended, one more process joins, or none (Schedule.Alone), and everything has to
// become settled. Then the book is judged; judge.go has each rule with its reason, and so have repeats.go, order.go and
// written.go.
//
// # What a world is
//
// A [Kind] makes worlds. It knows its broker and nothing of consumers: it makes sources and publishers for a process, stores
// messages, does faults, and says from outside what is not settled. A fault that it cannot do is in [Kind.Cannot], with the
// reason: the plan leaves it out, and a schedule that has it fails. Of the engine's own troubles (a stop, a pause, other
// limits) no world knows.
//
// # What handlers emit
//
// Where Settings.Emits says so, each run of a handler emits outputs whose values name message and run, also those that fail then.
// At the end the topic of the outputs is read, as by who reads what is committed, and held against what was acked: outputs.go,
// and the rules in written.go. The world's sources store them with their progress; one whose sources cannot says why
// (Kind.EmitsNot). With Settings.Bridge they are published before the ack instead, at least once (Kind.Bridges): bridge.go.
//
// # What a program gives a consumer to call
//
// With Settings.Hooks an observer asks the consumer about itself and panics, an Around is told the end of calls, and what
// handlers put off is woken, or not, by whoever holds its wake: hooks.go.
//
// # What does not repeat
//
// The scheduler is not ours. A schedule fixes what is done and when, and how each run of a handler acts; which of two
// goroutines that wake at the same instant goes first it does not. So a finding may need several tries, and Shrink makes them.
//
// # What this cannot see
//
// Real networks, disks and processors; a process that is frozen stands still here with its connections and handlers, not with
// its timers; and whatever the stand-in for the broker does differently. That stays with Apache Kafka, nats-server and real
// processes, in package integration.
//
// The world kafka is kafkabroker on kfake, nats is natsbroker on a real nats-server; both are reached over pipes, by package
// memnet. TCP sends nothing twice, and so does memnet. One nats-server has no peers: leaders that move, and lame duck mode, which
// a server without a socket does not know, are not to be had. kfake has one log for all its brokers, so nothing is lost or cut
// off with a leader; and where it counts the sessions and joins of members otherwise than Kafka does, reaper.go says how.
//
// # Where things are
//
// What is done: plan.go rolls a schedule.go for a seed, with fault.go and handler.go, how handlers act; shrink.go makes it small.
//
// Who does it: run.go carries a schedule out, deeds.go does its faults, and silence.go notes those that keep a broker from being
// heard; process.go is a consumer, with spy.go between engine and source, events.go for what it tells, bridge.go and outputs.go
// for what handlers emit, routes.go for where dead letters go, hooks.go for what a program adds, limits.go and
// circuit.go for what holds calls back, and dedup.go for what skips them.
//
// On what: world.go says what a broker has to be; memworld.go, natsworld.go and kafkaworld.go are three, netprocess.go what the
// last two have in common. kafkaprocess.go and kafkalog.go are of Kafka, and reaper.go and passerby.go do what kfake does not.
//
// Who judges: book.go keeps account; judge.go, repeats.go, order.go and written.go are the rules, shares.go looks who has which
// part of the work, troubles.go says what excuses, and unfinished.go what keeps a run from being over.
//
// Many of them: explore.go runs seeds, in processes of child.go.
package sim
