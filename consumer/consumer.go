package consumer

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A Consumer handles the messages of a source. Make it with New, run it with Run, once. Its other methods are safe for concurrent
// use and may be called at any time.
type Consumer struct {
	cfg  Config
	tell *teller
	life *life

	// The way in: what is received, and by whom it is held.
	feeds   feeds
	budgets *budgets
	intake  *intake
	claims  *claims
	revoker *revoker

	// The way to a handler.
	queue    *queue
	batches  *batches // nil: one by one
	workers  *workers
	watchdog *watchdog

	// The way out: what becomes of what was handled.
	parked       *parking
	letters      *letters
	destinations *destinations
	till         *till

	figures *figures
	health  *health
}

// New checks cfg and makes a Consumer of it. The error names every field that is wrong.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c := &Consumer{cfg: cfg, feeds: newFeeds(&cfg)}
	of := &c.cfg
	c.tell = newTeller(of)
	c.life = &life{tell: c.tell}
	c.claims = newClaims(of)
	c.queue = newQueue(of, c.tell)
	c.batches = newBatches(of, c.queue, c.tell.clock)
	c.till = newTill(c.tell, c.queue, c.batches, c.cfg.Order)
	c.parked = newParking(c.tell, c.till)
	c.letters = newLetters(of, c.tell, c.till, c.parked)
	c.destinations = &destinations{cfg: of, tell: c.tell}
	retries := &retries{cfg: of, tell: c.tell, till: c.till, parked: c.parked, letters: c.letters, claims: c.claims}
	judge := &judge{cfg: of, tell: c.tell, till: c.till, batches: c.batches, parked: c.parked, letters: c.letters, retries: retries}
	c.workers = newWorkers(of, c.tell, c.till, judge, &c.tell.pace)
	c.watchdog = newWatchdog(of, c.tell, c.till, judge, c.workers)
	c.revoker = newRevoker(c.claims, c.till, c.queue, c.batches, c.parked, c.letters)
	c.budgets = &budgets{cfg: of, feeds: c.feeds, queue: c.queue, till: c.till, retries: retries}
	c.intake = &intake{
		cfg: of, feeds: c.feeds, claims: c.claims, revoker: c.revoker, retries: retries, queue: c.queue, till: c.till, tell: c.tell,
	}
	c.figures = &figures{
		life: c.life, feeds: c.feeds, intake: c.intake, claims: c.claims, queue: c.queue, workers: c.workers, till: c.till,
		parked: c.parked, letters: c.letters, tell: c.tell, watchdog: c.watchdog,
	}
	c.health = &health{cfg: of, life: c.life, feeds: c.feeds, claims: c.claims, retries: retries, figures: c.figures}
	return c, nil
}

// SetLimits changes the least and the most workers, also while running.
func (c *Consumer) SetLimits(minimum, maximum int) error { return c.queue.setLimits(minimum, maximum) }

// Pause stops taking messages from the broker; what was taken is handled. It does not wait.
func (c *Consumer) Pause() error {
	c.intake.gate.shut()
	return c.pauseSources()
}

// Resume undoes Pause.
func (c *Consumer) Resume() error {
	c.intake.gate.lift()
	return c.pauseSources()
}

// pauseSources has the sources do as the gate does, and again where it has turned meanwhile. Else: one pauses, another one
// resumes gate and sources, and then the first pauses the sources, which nobody resumes, since nobody is paused.
func (c *Consumer) pauseSources() error {
	for {
		shut := c.intake.gate.isShut()
		err := c.feeds.pausers(func(p broker.Pauser) error {
			if shut {
				return p.Pause()
			}
			return p.Resume()
		})
		if c.intake.gate.isShut() == shut {
			return err
		}
	}
}

// Ready says whether the consumer is running and its sources had contact with the broker when they last spoke of it.
func (c *Consumer) Ready() bool { return c.life.at() == Running && c.feeds.connected() }

// Health says what is wrong that a restart would mend, or nil. It fails with ErrEnded when Run has returned an error, with
// ErrTooManyStuck when MaxStuck is reached, and with ErrNoProgress when a running, unpaused consumer did one of these:
//
//   - received nothing for noProgress, although messages wait at the broker and it has contact, workers and budget to take them;
//   - began no handler for noProgress, although messages wait here and a worker is idle;
//   - began no handler, and had none return, although messages wait and every worker is in a handler: for Timeout, StuckAfter and
//     noProgress together, or without a Timeout for ten times noProgress, since nobody knows how long a handler may take then.
//
// A handler that returns an error is alive: what it calls is out, and no restart mends that. So is one that takes long while
// others can begin, and a message that waits for its retry or for its dead letter to be stored, also where it keeps the window of
// its claim full, so that nothing of that can be received. 0 skips ErrNoProgress. An unknown lag is no work, nor is what the
// broker holds back (broker.Lag.Held).
//
// How long nothing has moved is known only from one call to the next, so call it regularly, as a liveness probe does. It does not
// block.
func (c *Consumer) Health(noProgress time.Duration) error { return c.health.check(noProgress) }

// Concerns says what is missing that does not keep the consumer from running, but will keep messages here when they need it:
// topics, or streams, for dead letters and retries. Sorted; nil: nothing.
func (c *Consumer) Concerns() (all []string) { return c.destinations.concerns() }

// Stats returns the current figures. It does not block.
func (c *Consumer) Stats() Stats { return c.figures.stats() }

// LagByPartition returns the lag of each partition that is held here, by topic and number. Sources without partitions, and those
// that hold none, are one row without a topic, with the partition -1. nil: the lag is unknown. It does not block.
func (c *Consumer) LagByPartition() []broker.PartitionLag { return c.feeds.lagByPartition() }

// Floors returns up to where all messages of the logs that it reads are finished for good, as the brokers have it down, also
// after Run has returned: see broker.Floor. Package inbox forgets by it what was handled. Sources that cannot tell have none.
// It does not block.
func (c *Consumer) Floors() []broker.Floor { return c.feeds.floors() }

// Oldest returns the time (Message.Time) of the oldest message that was received and is not settled: queued, running, parked, or
// on its way to the dead letters. The zero time: there is none, or none whose time the broker gave. How old it is says how late
// the slowest of what is in hand is, which a lag in messages does not.
//
// It looks at all that is in hand, some nanoseconds for each message, under one claim's lock at a time: for a scrape, not for a
// hot path.
func (c *Consumer) Oldest() time.Time { return c.figures.oldest() }

// Claims returns how each claim fares that the sources have, sorted by source, topic and partition. Like Oldest, it looks at all
// that is in hand, and it may ask the adapter for a lock for each claim: for a page that somebody looks at.
func (c *Consumer) Claims() []ClaimStatus { return c.figures.claimStatuses() }

// Calls returns at most n handler calls that have not returned, those that run the longest first; stuck ones that were replaced
// are among them. It takes the lock of one claim at a time, and does not block.
func (c *Consumer) Calls(n int) []Call { return c.figures.calls(n) }

// Parked returns at most n of the messages that wait in this process for their next attempt, those that are due first at the
// front. What waits at the broker, or in a retry topic, is not here. It does not block.
func (c *Consumer) Parked(n int) []ParkedMessage { return c.figures.parkedMessages(n) }

// Latency returns what was counted since Run began. It counts where there are Observers, and messages that have a time. It does
// not block.
func (c *Consumer) Latency() Latency { return c.tell.ages.latency() }
