// Package broker is the contract between an adapter (JetStream, Kafka, memory, …) and the engine in package consumer.
// Its comments are the specification of an adapter: one can be written from them alone, and package brokertest checks it.
//
// # Who does what
//
// The adapter owns what only it can know: how to pull, how much is outstanding, how long the broker waits for an answer,
// how progress is committed, and which messages may still be settled. The engine owns what must be the same on every
// broker: verdicts, attempts, waiting retries, dead letters, order, handlers and drain. Nothing is known twice.
//
// # The life of a message, seen from the contract
//
//	broker ──pull──▶ adapter ──Receive──▶ engine ──handler──▶ engine ──Ack | Nack──▶ adapter ──commit──▶ broker
//	                 (budget is taken)                         (budget is freed)
//
// A message is handed out by [Source.Receive] as part of a [Claim], and the engine settles it exactly once, by
// [Source.Ack] or [Source.Nack], whatever happens in between: a revocation, a lost claim, Stop, a fatal error, even after
// Close. The adapter alone bounds what is outstanding, by not pulling.
//
// # The life of a claim
//
//	        Keeper.Revoke(by)             Keeper.End(cause)
//	open ────────────────────▶ revoking ────────────────────▶ ended
//	 │                                                          ▲
//	 └───────────────────────── Keeper.End(cause) ──────────────┘
//
// It goes forward only. In open, messages are handed out and started. In revoking, the engine starts nothing new and at
// once gives back what no handler runs. In ended, every settle says [ErrLost].
//
// At the end of a claim the adapter keeps one order, at a revocation and at Close alike:
//
//	fence (settles now say ErrLost) → Keeper.End → last commit, which gives back what was not settled → release
//
// At Close the release of the last claim is that the process leaves its group. Another order loses acknowledgements: take the
// commit's snapshot, then a worker's Ack returns nil, then the commit lands without it, then the claim ends; the next owner does
// again what was said to be done.
//
// # Redeliveries
//
// A broker delivers again what it believes to be lost, and that may cross a settle of ours on its way. By what the adapter last
// did with the message:
//
//   - it is out here: not handed out. Its lease counts anew, and its settle goes by the newest delivery;
//   - it was acked: not handed out, and acked again, for the first ack may be what got lost;
//   - it was given back: it may be handed out at once, be it the answer to the Nack or older, unless its Delay is known not to be
//     over: then it is given back for the rest of it. From then on the Nack is not sent any more; and it is never sent a
//     second time to a broker that takes it from whoever has the message by then: it could pull it from under the next handler.
//
// For that an adapter remembers finished messages, by what names them beyond a recreation of the stream. Memory bounds how many:
// all whose settle is not known to be written down, and of the others as many as a broker may forget when it is killed; the
// adapters here keep the last 8,192 and more. What it has forgotten, it hands out again, which at-least-once allows.
//
// # Messages that are gone
//
// What the broker dropped before anybody handled it is told as a Gap, never passed over in silence: exactly how many, where the
// broker numbers its messages. What is out while it is dropped is settled as ever, and an ack of it is nil.
//
// A topic or stream that is deleted and made again begins anew, though its name and its offsets are the same. The least that an
// adapter owes then:
//
//   - every message of the new one is handed out, from its first, also when it was made anew while no process was there;
//   - nothing of the new one is taken for something of the old: not for finished, not for out here, and once this source has
//     heard of the new one no late settle of an old message reaches it. (JetStream knows a settle by its sequence alone: before
//     that one may.)
//   - a source that runs tells a Gap, of N -1 where it cannot know how many were lost. It may learn of it late, at its next
//     exchange with the broker. One that was away has nothing to compare with, and may tell none.
//
// Whether the old claim ends with it is the adapter's choice; if it goes on, the settles of what was out return what they would
// have.
//
// # What an adapter must never do
//
//   - hand out a message that is outstanding here, even when the broker redelivers it;
//   - wait for the network, or for a handler, in Ack, Nack, Stop or Lag;
//   - call Options.Observe while it holds a lock;
//   - return messages together with an error;
//   - hand out a message whose lease has run out while it waited in the adapter: somebody else may have it by now;
//   - give back or extend by a lease that has run out: on a broker that does not fence, that pulls the message from whoever has
//     it now, or keeps it there for longer. A late Ack stays useful and is sent, though it says ErrLost.
package broker
