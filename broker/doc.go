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
//	fence (settles now say ErrLost) → Keeper.End → last commit → release
//
// Another order loses acknowledgements: take the commit's snapshot, then a worker's Ack returns nil, then the commit lands
// without it, then the claim ends; the next owner does again what was said to be done.
//
// # What an adapter must never do
//
//   - hand out a message that is outstanding here, even when the broker redelivers it;
//   - wait for the network, or for a handler, in Ack, Nack, Stop or Lag;
//   - call Options.Observe while it holds a lock;
//   - return messages together with an error;
//   - give back (Nack, extend) by a lease that has run out: on a broker that does not fence, that pulls the message from
//     whoever has it now. A late Ack stays useful and is sent.
package broker
