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
//	                                                           ├─ Permanent, attempts used up ─▶ dead letter, confirmed, then ack
//	                                                           └─ cancelled by stop or lost claim ─▶ given back, not an attempt
//
// At each moment a message has one holder: the intake, a lane, a batch that gathers, the queue, the worker that runs it, the
// parking, or the letters. Who holds it settles it through the till, exactly once. Revocation and drain take what is unstarted
// where it lies.
//
// What fails waits for its next run in one of three places: at the broker, where that keeps delays; in a retry topic; or
// parked, in this process. In an order its lane waits with it: a lane is a line of messages that may only run one after the
// other, one for each key (or for each partition), made when a message of it comes and gone with its last; what has no lane
// waits for nobody. Before each run, and before it joins a batch, the guard looks at a message that no handler may be to see.
//
// # The life of a consumer
//
//	created ──▶ opening ──▶ running ──▶ stopping ──▶ draining ──▶ cancelling ──▶ closing ──▶ stopped
//
//	created     Run was not called yet
//	opening     the sources connect, beside each other, and none claims anything before each of them could. Where there are
//	            several, it lasts until one has something to read (broker.MissingReporter). It takes as long as that takes, or
//	            OpenTimeout; what fails here ends Run at once
//	running     messages are received and handled
//	stopping    Run's context ended, or the source failed: receiving ends
//	draining    what is unstarted, parked or queued goes back to the broker at once; running handlers go on, at most DrainTimeout
//	cancelling  handlers' contexts end with ErrShutdown; what returns nil is still acked, an error goes back, uncounted
//	closing     workers end, the source commits and leaves
//	stopped     Run returns
//
// A state that has nothing to do is passed through at once. This is the one place where the stop is described; everything else
// refers to it.
//
// # The parts
//
// The files in the order in which they are best read. Each is a part with its own state and, where it needs one, its own lock; it
// calls what stands below it, and never back. So the till, which every ack, nack and give-back passes, calls no part that has
// called it.
//
//	consumer.go     a Consumer: what it is made of, and what one can ask it
//	run.go          Run, and whatever runs beside the workers; drain.go: the stop; life.go: the states
//	health.go       what a restart would mend; figures.go: Stats, and the oldest message; one by one: claimstatus.go, call.go,
//	                parkedmessage.go
//	prefetch.go     how much the sources may hand out; destination.go: whether there is a place for what fails
//	intake.go       receives; slab.go: into which memory; inorder.go: where there is an order; retryintake.go: from the retry
//	                topics; gate.go: the pause; cutter.go: makes works of it, where there are no batches
//	revoke.go       follows claims to their end, and takes back what has not started
//	watchdog.go     slow and stuck handlers; strays.go: those it gave up; stacks.go: where they are
//	worker.go       calls handlers; context.go: with which context; around.go: for those who follow a call to its end;
//	                emit.go: what they emit; emissions.go: kept until its ack; output.go: published before that; record.go: in
//	                a test
//	judge.go        what becomes of a message that failed; decide.go: the rules, without clock and I/O; readable.go: errors that
//	                panic when they are read
//	retries.go      where a failed message waits: at the broker, in a retry topic, or parked
//	letters.go      publishes to dead letters and retry topics; outbox.go: what goes together; letter.go, headerstyle.go: their
//	                headers; origin.go: reads them again
//	parked.go       what waits here for its next attempt
//	till.go         every ack, nack and give-back: counts what is here, frees lanes, has what waits follow
//	batches.go      gathers batches, and says when one is complete
//	queue.go        what waits for a worker; pace.go: how long handlers take
//	claims.go       what of each claim is alive here; shelf.go: where its batches lie until they are complete
//	feed.go         the sources: their lag, their contact, their end
//	lanes.go        what waits for its turn in an order; partitionlanes.go: for each partition its own; lanetable.go: how a lane
//	                is found; chain.go: in which memory it waits; order.go: which lane a message belongs to; lapse.go: what is
//	                received while the one before it goes back
//	work.go         some messages on their way through queue and worker; item.go: one that goes its way alone
//	schedule.go     things that wait for their time
//	guard.go        messages that no handler is to see
//	teller.go       observers and counters; clock.go: their time; log.go, slog.go, latency.go: what they make of it
//
// The words that all of them use stand beside that: config.go (validate.go), with batch.go, priority.go, letterroute.go
// and retrytopic.go, handler.go, verdict.go, defer.go, event.go.
package consumer
