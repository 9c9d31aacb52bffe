package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/ledger"
)

// A book keeps account of a run: what was stored, each run of a handler, each dead letter, and all that was done. Safe for
// concurrent use.
type book struct {
	began time.Time

	mu         sync.Mutex
	now        int64 // the last stamp
	stored     []stored
	entries    []*entry
	runs       map[int]int  // of each message, how many began
	done       map[int]int  // of each message, how many returned nil or Skip
	letters    map[int]int  // of each message, how many are confirmed
	crashed    map[int]bool // those of which a letter says that they kill processes
	lastLetter map[int]time.Time
	stamps     []ledger.Letter
	had        map[had][]time.Time    // when a process was given a message
	backs      map[back][]time.Time   // when one was given back
	renewals   map[string][]time.Time // when a topic was made anew
	restarts   map[string]time.Time   // when somebody began a partition anew for that last, by its name
	offers     map[output]*offer
	ids        map[string]output // of outputs that were published, without their runs
	troubles   []trouble
	findings   []string
	told       []string
}

// stored is a message of a run. Its number is its place in the list.
type stored struct {
	topic string
	// epoch is how often the topic was made anew before it came.
	epoch  int
	at     time.Time
	offset int64 // -1: not known
	// goneAt is when the broker dropped it, zero: it did not; gone is the stamp. held: its partition was somebody's by then.
	goneAt time.Time
	gone   int64
	held   bool
}

// A batch is what a batch handler was called with.
type batch struct {
	size   int
	called time.Time
}

// An entry is one run of a handler.
type entry struct {
	message, nth int
	process      *process
	ctx          context.Context
	seq          int64 // where the message stands in its partition
	lane         string
	attempt      int32     // the broker's count
	called       time.Time // from when on the engine counts its time: where its process stood still, it began later
	began, ended time.Time
	begin, end   int64
	outcome      ledger.Outcome
	act          Act
	void         bool // its result does not count, by a promise
	failed       bool // it used up an attempt
	fine         bool // its handler returned nil for it
	nowhere      bool // the topic of its outputs is missing
	stood        bool // its process stood still before it began, and may have given it up
	late         bool // it returned after the end of its context
	overdue      bool // it returned when its claim's time was over, be it at the very instant, before its context ended
	zombie       bool // when it began its process stood still, its context was over, or its partition was stolen; or it is void
	claim        *broker.Claim
	batch        *batch
}

// A trouble is something that may let messages be handled again, and when it was so.
type trouble struct {
	process     *process // nil: all
	message     int      // -1: all
	from, until time.Time
	// light: alone it costs nothing, for what it has lost is sent again in time.
	light bool
	// holds: what its process sent meanwhile arrives at its end.
	holds bool
	// forgets: the broker forgot what happened meanwhile.
	forgets bool
}

// A had is a message in a process.
type had struct {
	message int
	process *process
}

// A back is a message that was given back under a claim.
type back struct {
	message int
	claim   *broker.Claim
}

func newBook() *book {
	return &book{
		began: time.Now(), runs: map[int]int{}, done: map[int]int{}, letters: map[int]int{}, lastLetter: map[int]time.Time{},
		crashed: map[int]bool{},
		had:     map[had][]time.Time{}, backs: map[back][]time.Time{}, renewals: map[string][]time.Time{},
		restarts: map[string]time.Time{},
		offers:   map[output]*offer{}, ids: map[string]output{},
	}
}

// gaveBack notes what was given back under a claim.
func (b *book) gaveBack(c *broker.Claim, places []place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range places {
		of := back{numberOf([]byte(at.value)), c}
		b.backs[of] = append(b.backs[of], time.Now())
	}
}

// note writes down what happened.
func (b *book) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteHere(format, args...)
}

// noteHere needs b.mu.
func (b *book) noteHere(format string, args ...any) {
	b.told = append(b.told, fmt.Sprintf("%9.3f ", time.Since(b.began).Seconds())+fmt.Sprintf(format, args...))
}

// find writes down what must not be.
func (b *book) find(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.findHere(format, args...)
}

// findHere needs b.mu.
func (b *book) findHere(format string, args ...any) {
	b.findings = append(b.findings, fmt.Sprintf(format, args...))
	b.noteHere("FINDING "+format, args...)
}

// renew enters that a topic was made anew.
func (b *book) renew(topic string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.renewals[topic] = append(b.renewals[topic], time.Now())
}

// restart enters that somebody began a partition anew, for its topic was made anew.
func (b *book) restart(topic string, partition int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restarts[partitionName(topic, partition)] = time.Now()
}

// restarted says whether somebody did so since a time.
func (b *book) restarted(topic string, partition int32, since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.restarts[partitionName(topic, partition)].Before(since)
}

func partitionName(topic string, partition int32) string {
	return fmt.Sprintf("%s/%d", topic, partition)
}

// value is the value of a message, by which it is known.
func value(message int) []byte { return []byte("m" + strconv.Itoa(message)) }

// valueOf is that with as many bytes behind it as the schedule says.
func (s Schedule) valueOf(message int) []byte {
	n := 0
	if s.isOversize(message) {
		n = 100 + s.Settings.Size
	} else if s.Settings.Size > 0 {
		n = rand.New(rand.NewPCG(s.Seed, 1<<52|uint64(message))).IntN(s.Settings.Size)
	}
	if n == 0 {
		return value(message)
	}
	return append(append(value(message), ' '), bytes.Repeat([]byte{'.'}, n)...)
}

// isOversize says whether no handler is to see a message.
func (s Schedule) isOversize(message int) bool {
	return s.Settings.Oversize > 0 && rand.New(rand.NewPCG(s.Seed, 1<<54|uint64(message))).IntN(100) < s.Settings.Oversize
}

// numberOf is the number of the message with that value; -1: it is none of ours.
func numberOf(value []byte) int {
	number, _, _ := strings.Cut(strings.TrimPrefix(string(value), "m"), " ")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// nameOf is a value without what stands behind its number.
func nameOf(value []byte) string {
	name, _, _ := strings.Cut(string(value), " ")
	return name
}

// trouble writes down what may let messages be handled again.
func (b *book) trouble(t trouble) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = append(b.troubles, t)
}

// store enters a message of a topic. It returns its number.
func (b *book) store(topic string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored = append(b.stored, stored{topic: topic, epoch: len(b.renewals[topic]), at: time.Now(), offset: -1})
	return len(b.stored) - 1
}

// drop enters that the broker has dropped messages. held: their partition was somebody's.
func (b *book) drop(numbers []int, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now++
	for _, n := range numbers {
		s := &b.stored[n]
		s.goneAt, s.gone, s.held = time.Now(), b.now, held
	}
	b.noteHere("gone: %v", numbers)
}

// handOut enters that a process was given messages.
func (b *book) handOut(p *process, ms []broker.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range ms {
		x := had{numberOf(ms[i].Value), p}
		b.had[x] = append(b.had[x], time.Now())
	}
	first, last := &ms[0], &ms[len(ms)-1]
	b.noteHere("%s is given %d of %s/%d: %s to %s", p.name, len(ms), first.Topic, first.Partition, nameOf(first.Value),
		nameOf(last.Value))
}

// begin enters a run of a handler. of is the batch that it is part of, or nil.
func (p *process) begin(ctx context.Context, m *consumer.Message, of *batch) *entry {
	called := time.Now()
	if of != nil {
		called = of.called
	}
	still := p.standStill()
	b := p.run.book
	e := &entry{
		called: called, stood: time.Now().After(called),
		message: numberOf(m.Value), process: p, ctx: ctx, claim: m.Claim, began: time.Now(),
		seq: ledger.Seq(max(0, m.Partition), m.Offset), attempt: m.Attempt,
		zombie: still || p.isDead() || ctx.Err() != nil || over(m.Claim) || p.robbed(m), batch: of,
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.message < 0 || e.message >= len(b.stored) {
		b.findHere("%s was given a message that nobody stored: %q of %s", p.name, m.Value, m.Topic)
		e.message = 0
	}
	if p.run.schedule.isOversize(e.message) {
		b.findHere("%s: a handler is given m%d, which is larger than MaxMessageBytes", p.name, e.message)
	}
	e.lane = p.run.laneOf(m, b.stored[e.message].epoch)
	e.nth = b.runs[e.message]
	b.runs[e.message]++
	b.now++
	e.begin = b.now
	for _, other := range p.run.running {
		if other.lane == e.lane && e.lane != "" && !e.zombie {
			p.run.judgeOverlap(e, other)
		}
	}
	p.run.running = append(p.run.running, e)
	b.entries = append(b.entries, e)
	b.noteHere("%s begins m%d, run %d, of %s/%d at %d", p.name, e.message, e.nth, m.Topic, m.Partition, m.Offset)
	return e
}

// over says whether a claim has ended. The engine learns it a moment later than we do.
func over(c *broker.Claim) bool {
	select {
	case <-c.Ended():
		return true
	default:
		return false
	}
}

// isDue says whether the time that a revocation leaves is over.
func isDue(c *broker.Claim, now time.Time) bool {
	return !c.Startable() && !c.By().After(now)
}

// end enters how a run ended, and returns what the handler returns.
func (p *process) end(e *entry, err error) error {
	p.standStill()
	b := p.run.book
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range p.run.running {
		if other == e {
			p.run.running = append(p.run.running[:i], p.run.running[i+1:]...)
			break
		}
	}
	if p.isDead() { // then it has never ended
		return errDied
	}
	if e.batch != nil { // its messages are handled one after the other, as far as anybody can tell
		b.now++
		e.begin = b.now
	}
	b.now++
	e.end, e.fine = b.now, err == nil
	b.endHere(e)
	timedOut := errors.Is(context.Cause(e.ctx), consumer.ErrTimeout)
	e.failed = err != nil && !consumer.IsSkip(err) && !consumer.IsDeferred(err) && (!e.late || timedOut)
	switch {
	case e.void:
		e.outcome, e.zombie = ledger.Cancelled, true
	case err == nil || consumer.IsSkip(err):
		e.outcome = ledger.Done
		b.done[e.message]++
	case consumer.IsDeferred(err), over(e.claim), e.late && !timedOut, b.doneMeanwhile(e):
		e.outcome = ledger.Cancelled
	default:
		e.outcome = ledger.Failed
	}
	b.noteHere("%s ends m%d: %s %v", p.name, e.message, e.outcome, err)
	return err
}

// endHere enters that a run ends now. It needs b.mu.
func (b *book) endHere(e *entry) {
	e.ended = time.Now()
	e.late, e.overdue = e.ctx.Err() != nil, isDue(e.claim, e.ended)
}

// doneMeanwhile says whether another process handled a run's message since it began, or stored its dead letter: this one had lost
// it, and learns it only now. Where the broker forgets, that may have been before: it gives the message to a second one, and then
// hears again that it is settled.
func (b *book) doneMeanwhile(e *entry) bool {
	forgets := e.process.run.schedule.has(Forget)
	if b.lastLetter[e.message].After(e.began) {
		return true
	}
	return slices.ContainsFunc(b.entries, func(other *entry) bool {
		mine := other.message == e.message && other.process != e.process
		return mine && other.outcome == ledger.Done && (forgets || other.ended.After(e.began))
	})
}

// acts enters what a run is told to do. Letters of others are judged meanwhile.
func (b *book) acts(e *entry, act Act) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.act = act
}

// letter enters a dead letter that was confirmed.
func (b *book) letter(p *process, o broker.Outgoing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := numberOf(o.Value)
	if n < 0 || n >= len(b.stored) {
		b.findHere("%s published a dead letter of a message that nobody stored: %q", p.name, o.Value)
		return
	}
	if want := p.run.schedule.letterTopicOf(n, classOf(o)); o.Topic != want {
		b.findHere("%s published the dead letter of m%d, of class %s, to %s, want %s", p.name, n, classOf(o), o.Topic, want)
	}
	b.letters[n]++
	b.lastLetter[n] = time.Now()
	b.now++
	for _, e := range b.entries {
		if e.message == n {
			b.stamps = append(b.stamps, ledger.Letter{Seq: p.run.placeOf(e), Pid: p.no, At: b.now})
			break
		}
	}
	if classOf(o) == "crash" {
		b.crashed[n] = true
		b.judgeSuspect(p, n)
	} else {
		b.judgeAlone(p, n)
	}
	b.noteHere("%s published the dead letter of m%d", p.name, n)
}

// classOf is the class of failure that a dead letter tells.
func classOf(o broker.Outgoing) string {
	i := slices.IndexFunc(o.Headers, func(h broker.Header) bool { return h.Key == broker.HeaderErrorClass })
	if i < 0 {
		return ""
	}
	return string(o.Headers[i].Value)
}

// open lists the messages that were neither handled nor dead-lettered, nor dropped by the broker. kept are those that are in a
// topic of dead letters.
func (b *book) open(kept map[int]bool) (left []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.stored {
		if b.done[n] == 0 && b.letters[n] == 0 && !kept[n] && b.stored[n].goneAt.IsZero() {
			left = append(left, n)
		}
	}
	return left
}
