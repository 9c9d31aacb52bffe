// Package brokertest is the conformance suite of broker.Source and broker.Publisher. An adapter passes when every case of [Run]
// does, or is skipped for a reason that is true of its broker. Each case's comment, in this package's source, says what it
// proves.
//
// # Writing a Harness
//
// An adapter's author writes one [Harness] and one test. (docs/adapters.md tells the whole way, and the module
// examples/redisbroker is a whole adapter.)
//
//	func TestConformance(t *testing.T) { brokertest.Run(t, harness()) }
//
// [Harness.New] is called for each case. It makes a broker, or fresh topics and a fresh group on one that runs, and returns a
// [System]: the topics' names and functions to act on the broker from outside. Three are required:
//
//   - Join: another process of the group, that is a source with its own connection, not opened;
//   - Produce: messages of some other program, stored when it returns;
//   - Unsettled: how many messages the broker would deliver, were all processes gone. Ask the broker, never the adapter:
//     JetStream's NumPending + NumAckPending; on Kafka end offset minus committed offset, minus the finished ones in the commit's
//     metadata.
//
// The other functions make trouble: a broker that is down, a connection that loses what is sent, a process that dies or stands
// still, claims that are taken away, settles that fail, logs that are trimmed or made anew. Where one cannot be had, leave it nil
// and give the reason in [Harness.Cannot] under its name: the cases that need it are skipped and say so, by name and reason. A
// function that is nil without a reason makes its cases fail, and the case HarnessIsWhole, so that nothing is left out by
// oversight. Some cases do not apply because of [broker.Traits]; they are skipped by themselves.
//
// A broker of leased messages that nobody can take away (a queue) has no Revoke, Steal and Bounce. The order at a claim's end,
// fence, End, commit, is then held by the cases SettleRacesClose and CloseTwiceBesideAck, so give it SlowSettles.
//
// # Trouble over TCP
//
// For a broker over TCP package faultproxy, below this one, makes most of the trouble: New makes one proxy for each Join, and its
// address is what the source connects to.
//
//   - Cut is Set with Shape{Hold: true} for its direction; Heal is Reset and then Heal, so that what was held is lost and not
//     late;
//   - Freeze is SetBoth(Shape{Hold: true}), and Thaw is Heal, for what is sent to a process that stands still arrives when it
//     goes on;
//   - Kill is Refuse(true), Reset, and Close of the source with a ctx that has ended; where messages are bound to a connection,
//     whose end gives them back at once, SetBoth(Shape{Hold: true}) instead of Reset, and the client's sockets stay open;
//   - Down is Refuse(true) and Reset at all proxies of the case, those of Join to come included; Up is Refuse(false);
//   - SlowSettles is a Latency to the broker.
//
// What an exchange says, as for FailSettles, a proxy does not know: that is a hook in the adapter's client, or a command to the
// broker.
//
// # Time
//
// Take a short lease (AckWait, session timeout), 300-800 ms: cases sleep for a few of them to show that something does not
// happen. What has to happen is waited for, up to [Harness.Patience], so a slow machine makes a slow run and no failure. Where
// the process was starved beside other cases it is a quarter of that: it may have lost what it waits for, and is to try again.
// Where the broker is another process it may be starved, too: see [Harness.Probe]. While you write the adapter, take a Patience
// of a few seconds. Most of a run is waiting: with [Harness.SideBySide] cases wait beside each other. An adapter without I/O
// sets [Harness.Bubble] and runs in no time inside testing/synctest. A case that wants to tell "given back" from "the lease ran
// out" asks for a very long one in [Setup.Lease]; New has to heed it.
//
// # What holds in every case
//
// Whatever a case is about, the suite watches each Receive, settle and event of each process: never messages with an error;
// chunks of one claim, never of one that was revoking before the call; never a message that is out here already; with
// Traits.Ordered first deliveries of a partition in order; never more out than the budget; Assigned before anything of the claim,
// Ended after Keeper.End; Err where an event has to have one; Down at most once a second; settles that say nil, ErrLost or
// ErrSettled; what was acked with nil does not come again unless it was reported as Unconfirmed after that ack; committed offsets
// never go back; after Close every claim has ended. Before Receive something else stands in dst, of which nothing may be left.
// What is read during a call only (dst, tokens, give-backs) it writes over afterwards: an adapter that keeps it settles other
// messages, or none.
//
// What was handed out within a twentieth of a lease after another process acked it is forgiven: that redelivery was under way
// when the ack was made.
//
// # Proving that the suite sees it
//
// [Failures] runs cases and returns what failed instead of failing. Build the adapter with a deliberate mistake,
// by go test's flag -overlay, and demand that it is not empty; integration/mutants_suite_test.go does that with membroker for
// more than thirty mistakes.
//
// # Where things are
//
//	harness.go     what an author gives; ability.go: whether it is whole
//	run.go         runs what cases.go lists; bubble.go: in virtual time
//	world.go       a case under way; faults.go: what it does to the broker; producer.go: what was produced
//	member.go      a process in it, and what is checked at each call: hand.go has what it was handed out, claimbook.go its claims,
//	               told.go its events; settle.go settles, leave.go ends it
//	stories.go     what became of each message; promise.go: acks that said nil; names.go: what it was called; pulse.go: whether the
//	               machine let us run
//
// The cases, by their subjects: effect.go (the harness itself), delivery.go, settling.go, delays.go (of what is given back),
// pending.go (what waits in the adapter), claims.go, replicas.go (an order over processes), open.go, stop.go, unsaid.go (what
// Close could not say), budget.go, exact.go (a budget that is used up to the last byte), gap.go, trouble.go, storm.go,
// outputs.go, operations.go, lag.go, floors.go, share.go, payload.go, publish.go, leak.go.
package brokertest
