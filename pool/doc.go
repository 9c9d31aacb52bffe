// Package pool runs any T on a bounded number of goroutines and decides how many those should be. It knows no messages and
// imports the standard library only.
//
// # The queue
//
// A T enters through one of two doors. Submit (SubmitAll, TrySubmit) is for sources: it blocks at the bound, which is the
// back-pressure. Requeue is for those inside (workers, timers): it never blocks, because workers that wait for room only workers
// can make are a deadlock. T's wait in one line per class, taken from by weight or by rank.
//
// # The workers
//
//	         work waits, or comes
//	started ──────────────────────▶ busy ◀──────────────┐
//	   │                          │  │  │               │ woken: last in, first out
//	   │ nothing waits            │  │  │ nothing waits │
//	   └────────────────▶ idle ◀──┼──┼──┘               │
//	                       │ │    │  └─ Held says so ─▶ abandoned ── Do returns ──▶ gone
//	  reports its idle     │ └────┼─────────────────────┘   (another worker has its slot)
//	  timeout, asks to go  │      │ the manager wants fewer, by force
//	  ── the manager says ─┴──────┴─────────────────────────────────────────────▶ gone
//
// Idle workers stand on a stack, so the surplus stays idle, its idle timeouts pass, and it says so. A worker never goes by
// itself: it reports, which never waits, and only the manager changes the count; so there are never fewer than Min nor more than
// Max. A panic leaves the worker as it is; runtime.Goexit takes the goroutine, and another takes its slot.
//
// Where hundreds have something in hand, who wakes more of them lets those run first: as long as processors are what lacks, the
// same few workers do the work, and the rest of thousands costs nothing.
//
// The clock is read once per T, the lock taken once, and a timer touched only when there is nothing to do, at most once per
// IdleTimeout. A T should be worth that: some 100 ns. So a T of short work is best a chunk of many, which Split can take apart
// again when it turns out long.
//
// # The manager
//
// The manager looks when work waits and no worker is idle, when a worker reports an idle timeout, when the limits change, and as
// often as its Policy asks; in an idle pool it sleeps, and at a size that is fixed it looks seldom. From totals it makes Rates,
// the policy makes of an Observation a Decision, without clock or I/O, and what changes the size goes to Config.Observe with its
// Reason. Classic, Fixed, QueueThreshold and AIMD are there to compare, and for who needs their behaviour. With a Gauge the
// manager also minds memory and processors, whatever the policy.
//
// # The parts
//
// The floor is all that submitters, workers, manager and scanner share, and has the only lock; each of its methods is one event.
// In it are parts without a lock: the handoff, where a T meets a worker, of the queue and the crew (who is idle, who has which T,
// how many there may be); the tally of totals; and the ending. Around it are those that have a goroutine: Worker, manager,
// scanner. Pool makes them and is what others see.
//
//	pool.go, config.go   a Pool, and what it is told; submit.go: its two doors; sweep.go: takes out what is empty; group.go: units
//	                     with a result; stats.go: a look
//	floor.go             the floor; handoff.go, crew.go, queue.go, waiter.go, tally.go, ending.go: its parts
//	worker.go            a worker; scan.go: the scanner, which looks for those that are held up
//	manager.go           the loop: it sees, estimate.go (pace.go) makes Rates of that, the policy decides, guard.go keeps the
//	                     decision within what gauge.go (cgroup.go, cputime_unix.go, cputime_other.go) says of memory and processors
//	policy.go            what a policy sees and says; reason.go: the reasons, which metrics, page and logs have, too
//	status.go            ReportStatus, the default policy: when it grows and shrinks; proof.go: what proves that more, or less, is
//	                     better; refusal.go: what it makes of a downstream that refuses
//	classic.go, threshold.go, aimd.go   the others
//
// A rule that holds whatever the policy, as one about memory, is the guard's. Whoever has a Pool changes its size by SetLimits
// alone.
//
// # How many workers
//
// ReportStatus is the policy to have. In five sentences:
//
//  1. Workers report their idle timeouts, and the pool shrinks by those that did.
//  2. While work waits and nobody is idle it grows to Little's law (arrivals × handler time, the backlog gone in 250 ms, the
//     broker's too where what is here lasts until the next look, and from 16 on a square root for what varies), at most twofold
//     at a time, and by no more than one for each T that waits or comes in 250 ms; below 16 only when that takes three times
//     what the handlers in hand usually take, and beyond 16 not before two completions per worker.
//  3. At a size with all workers busy it measures a yardstick, completions per second, and how far off that may be: by chance, by
//     what a start adds and a cut takes away, and by what others do to it, which shows at one size.
//  4. A sequential test of two sizes, is the throughput in proportion to the workers or the same, decides: a growth that brings
//     less than half of what it could goes back to the knee, beyond which more bring nothing, and is barred for 0.1, 0.8, 6.4,
//     16 s, and for up to 48 s where it did harm; then an eighth more is tried, or as much as the yardstick is in doubt, then
//     twice that and so on, while it pays or proves nothing; and where more is piled up than waits by chance, and nothing proves
//     that less would do worse, half is tried, and half of that while it costs next to nothing, and all of it is taken back
//     where it does not.
//  5. Idle workers make it forget all proofs (but that less would do worse, where that size does as much again later), a
//     throughput that changes at one size replaces the yardstick, and a downstream that says that it is full (Worker.Refused) is
//     believed once it refuses clearly more than one in sixteen, as long as it is not proven that fewer workers do less, and are
//     refused as often.
//
// # The end
//
//	running ── Drain ──▶ draining ── nothing waits, nothing in hand ──▶ ending ── workers, then loops have ended ──▶ ended
//	                     Submit: ErrClosed                              Requeue still works: a worker is started for it
//
// What was taken is handled; what was refused is the caller's. There is no third outcome.
package pool
