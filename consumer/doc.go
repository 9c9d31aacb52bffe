// Package consumer is the engine: it takes messages from a broker.Source, runs a handler on each in an autoscaling pool, and
// settles each one after its handling.
//
// # The life of a message
//
//	          dispatch          pool              handler            decide              settle
//	Receive ───────────▶ queued ─────▶ running ───────────▶ returned ──────▶ ack ───────────────▶ Source.Ack
//	                        ▲                                  ├─ nil, Skip ──▶ ack
//	                        │                                  ├─ error ──────▶ retry ── the broker keeps the delay ──▶ Source.Nack
//	                        │              park (timer heap) ◀─┼──────────────────────── it cannot
//	                        └──────────────────────────────────┤
//	                                                           ├─ Permanent, attempts used up ─▶ dead letter: publish, confirm, then ack
//	                                                           └─ cancelled by stop or lost claim ─▶ given back, not an attempt
//
// At each moment a message has one holder: the dispatcher, the queue, the worker that runs it, the timer heap, or the dead-letter
// settler. Who holds it settles it, exactly once. Revocation and drain take what is unstarted where it lies.
//
// # The life of a consumer
//
//	running ──▶ stopping ──▶ draining ──▶ cancelling ──▶ closing ──▶ stopped
//
//	running     messages are received and handled
//	stopping    Run's context ended, or the source failed: receiving ends
//	draining    what is unstarted, parked or queued goes back to the broker at once; running handlers go on, at most DrainTimeout
//	cancelling  handlers' contexts end with ErrShutdown; what returns nil is still acked, what returns an error goes back, uncounted
//	closing     workers end, the source commits and leaves
//	stopped     Run returns
//
// A state that has nothing to do is passed through at once. This is the one place where the stop is described; everything else
// refers to it.
package consumer
