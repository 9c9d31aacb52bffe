package kafkabroker

import (
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// Holdings are what this process has of the log: its partitions, and what became of their messages. They decide, and do nothing:
// no I/O, no goroutine, no wait. What is to be done is returned to the caller.
//
// They are parts that have no lock and are read alone, each with its own state; all locks are taken here, one for each call, so
// that an ack takes one lock for all. Safe for concurrent use.
type holdings struct {
	// What each ack touches stands together, and apart from what is read without the lock: two processors that ack in turns pass
	// each other its lines.
	_  [64]byte
	mu sync.Mutex
	shared
	roster  roster
	claims  claims  // how they begin and end
	intake  intake  // what is handed out
	settles settles // what became of it
	flights flights // what is fetched
	commits commits // what is committed
}

func newHoldings(cfg *Config, b *bells, events *kit.EventQueue, known *books) *holdings {
	h := &holdings{roster: newRoster(), shared: shared{
		cfg: cfg, bells: b, events: events, stale: make(kit.StaleInFlight[logKey]),
		solo: solo{me: incarnation(), limit: cfg.CrashLimit, bells: b},
	}}
	h.solo.backlog = &h.backlog
	h.claims = claims{shared: &h.shared, r: &h.roster, books: known}
	h.intake = intake{shared: &h.shared, r: &h.roster}
	h.settles = settles{shared: &h.shared, r: &h.roster}
	h.flights = flights{shared: &h.shared, r: &h.roster, to: make(map[int32][]*flight), asked: make(map[int32]int),
		quiet: make(map[int32]int)}
	h.commits = commits{shared: &h.shared, r: &h.roster, floors: make(map[logID]broker.Floor),
		pace: pace{least: outputsLeast, most: outputsMost}}
	return h
}

// open takes what Open is told.
func (h *holdings) open(o broker.Options) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ordered = o.Ordered
	h.gate.SetBudget(o.Budget)
}

// stop ends pulling, and lets go what is prefetched.
func (h *holdings) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for _, p := range h.roster.turns {
		p.drop()
	}
	h.bells.look()
}

// end ends pulling for good; Receive says why.
func (h *holdings) end(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail(why)
}

// ending says whether nothing is pulled any more.
func (h *holdings) ending() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped || h.fatal != nil
}

func (h *holdings) setBudget(b broker.Budget) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate.SetBudget(b)
	h.bells.look()
}

// pause pauses topics, or all, or undoes it. What is prefetched of what is paused is let go.
func (h *holdings) pause(on bool, topics []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on {
		h.pauses.Pause(topics...)
	} else {
		h.pauses.Resume(topics...)
	}
	for _, p := range h.roster.turns {
		if h.pauses.Has(p.topic) {
			p.drop()
		}
	}
	h.bells.look()
}

// hold keeps what is prefetched, for a lane may be full for a moment only, and thousands be fetched again for the few that it has
// room for then. It is let go where Receive decodes from it, which would hand that out, and where it takes room that others need.
func (h *holdings) hold(p *part, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.hold(until, !p.busy && !h.gate.Scarce())
	h.bells.look()
	h.solo.away()
}

func (h *holdings) window(p *part) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return min(1, p.tr.window())
}

// lags are that of all partitions, and of each.
func (h *holdings) lags() (broker.Lag, []broker.PartitionLag) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flights.lags()
}

// changed is told by the membership.
func (h *holdings) changed(c change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims.changed(c)
	if c.kind == lost && len(h.roster.turns) == 0 {
		h.flights.lagAt = time.Time{} // what is lost still waits there, and nobody has said that others have it
	}
	h.bells.look()
}

// follow is what is to be done about what the membership told since.
func (h *holdings) follow(now time.Time) todo {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claims.follow(now)
}

// lookedUp says that it is known where partitions begin.
func (h *holdings) lookedUp(bs ...*start) {
	if len(bs) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.roster.found = append(h.roster.found, bs...)
	signal(h.bells.kick)
}

// introduce makes the claim of a partition that was looked up and says so, for admit to let Receive see it; nil: it is not wanted
// any more.
func (h *holdings) introduce(b *start, leader int32) *part {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claims.introduce(h, b, leader)
}

// An opening is a start whose claim was introduced.
type opening struct {
	b *start
	p *part
}

func (h *holdings) admit(os ...opening) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range os {
		h.claims.admit(o.b, o.p)
	}
}

// over are the claims that are to be ended now, which ended is told.
func (h *holdings) over(now time.Time) []endingClaim {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claims.over(now)
}

func (h *holdings) ended(e endingClaim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims.ended(e)
}

// leave ends all claims, and lets none begin any more.
func (h *holdings) leave(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims.leave(why)
}

// giveUp gives up the last commits that were not made.
func (h *holdings) giveUp(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims.giveUp(why)
}

// surveyed takes how topics are laid out, and which logs are gone.
func (h *holdings) surveyed(topics map[string]topic, isGone func(partitionID, topicID) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims.surveyed(topics, isGone)
	h.flights.surveyed()
	h.commits.forget(isGone)
}

// next wakes whoever has waited for long enough, and returns when to do so again; zero: never.
func (h *holdings) next(now time.Time) (next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wake, next := h.gate.Refill(now)
	due, at := h.roster.next(now)
	if wake || due {
		signal(h.bells.wake)
	}
	return sooner(next, at)
}

// lend lends what Receive decodes from, which take takes back.
func (h *holdings) lend(n int, now time.Time, lapsed bool) (decodeLease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.intake.lend(n, now, lapsed)
}

func (h *holdings) take(l *decodeLease, dst []broker.Message, now time.Time) (n int, hungry bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.intake.take(l, dst, now)
}

func (h *holdings) ack(p *part, tokens []uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settles.ack(p, tokens)
}

func (h *holdings) nack(p *part, backs []broker.Back) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settles.nack(p, backs)
}

func (h *holdings) isOut(p *part, token uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.tr.isOut(token)
}

func (h *holdings) ackEmitting(p *part, es []broker.Emission) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settles.ackEmitting(p, es)
}

// keeps says whether all of what was collected is still ours to store.
func (h *holdings) keeps(ds []due) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !slices.ContainsFunc(ds, func(d due) bool { return !h.roster.keeps(d.p) })
}

// unsent takes back the outputs of what was collected and is not stored.
func (h *holdings) unsent(ds []due) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits.unsent(ds)
}

// late takes note of a transaction whose time was over; the next one has less.
func (h *holdings) late(ds []due) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits.late(ds)
}

// inTime takes note of one that was stored, and how long that took.
func (h *holdings) inTime(took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits.pace.done(took, h.cfg.TransactionTimeout)
}

// takeBack gives up outputs that their topics refuse.
func (h *holdings) takeBack(by *demands) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits.takeBack(by)
}

// untold lets go of the outputs of a transaction of which nobody can tell whether it was committed.
func (h *holdings) untold(ds []due) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits.untold(ds)
}

// plan is what is to be fetched now, of which arrived is told.
func (h *holdings) plan(now time.Time) []*flight {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flights.plan(now)
}

// arrived takes what a fetch brought. What it returns is to be looked for, and found told, or unfound.
func (h *holdings) arrived(f *flight, got []fetched, err error, now time.Time) []outOfRange {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flights.arrived(f, got, err, now)
}

// unfound is found where the leader did not tell.
func (h *holdings) unfound(o outOfRange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flights.unfound(o)
	signal(h.bells.kick)
}

func (h *holdings) found(o outOfRange, first, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if why := h.flights.found(o, first, end); why != nil {
		h.claims.restart(o.p, why)
	}
	signal(h.bells.kick)
}

// resting says whether nothing is to be learned that the brokers do not tell.
func (h *holdings) resting() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flights.resting()
}

// unmeasured are the partitions whose ends are to be asked for, which measured is told.
func (h *holdings) unmeasured(now time.Time) []unknownEnd {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flights.unmeasured(now)
}

// asked are the lines to partitions, and to brokers that partitions are asked of, those too that are to begin.
func (h *holdings) asked(at *atlas) map[line]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := make(map[line]bool)
	for _, p := range h.roster.turns {
		lines[toLog(p.partitionID)], lines[toEnd(p.partitionID)], lines[toRange(p.partitionID)] = true, true, true
		lines[toBroker(p.node())], lines[toBroker(p.leader)] = true, true
	}
	for id := range h.roster.beginning {
		lines[toBroker(at.of(id).leader)] = true
	}
	return lines
}

func (h *holdings) measured(p *part, end int64, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flights.measured(p, end, now)
}

// due is what the next commit would have to tell.
func (h *holdings) due() backlog {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits.due(time.Now())
}

// collect is what is to be committed, of which answered is told, and where it is not stored unsent before. all: open claims too
// that have nothing new. Outputs to topics that are blocked stay.
func (h *holdings) collect(all bool, blocked func(topic string) bool) []due {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits.collect(all, blocked, time.Now())
}

func (h *holdings) answered(ds []due, isGone func(partitionID, topicID) bool) commitAnswer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits.answered(ds, isGone, time.Now())
}

// held is how many partitions are this process's: their claims have begun and not ended.
func (h *holdings) held() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.roster.parts)
}

func (h *holdings) floors() []broker.Floor {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits.floorsNow()
}
