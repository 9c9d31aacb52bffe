package sim

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/ledger"
)

// unfinished lists what keeps the run from being over, in words.
func (r *run) unfinished() (left []string, err error) {
	kept, err := r.keptLetters()
	if err != nil {
		return nil, err
	}
	if open := slices.DeleteFunc(r.book.open(kept), r.isMistaken); len(open) > 0 {
		left = append(left, fmt.Sprintf("%d messages are neither handled nor dead-lettered, as m%d", len(open), open[0]))
	}
	if n := r.untold(); n > 0 {
		left = append(left, fmt.Sprintf("%d messages were dropped before anybody was given them, and nobody tells a gap of them", n))
	}
	n, where, err := r.world.Unsettled()
	if err != nil {
		return nil, fmt.Errorf("asking the broker what is not settled: %w", err)
	}
	if n != 0 {
		left = append(left, fmt.Sprintf("the broker has %d messages that are not settled: %s", n, where))
	}
	for _, p := range r.processes {
		if p.stopped.IsZero() {
			left = append(left, p.holds()...)
		}
	}
	return left, nil
}

// holds lists what a process has that it should not have when all is settled.
func (p *process) holds() (left []string) {
	s := p.c.Stats()
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"in flight", s.InFlight}, {"parked", int64(s.Parked)}, {"lanes", int64(s.Lanes)}, {"waiting in lanes", int64(s.Waiting)},
		{"waiting for a worker", int64(s.Pool.Backlog)}, {"lag", max(0, s.Lag.Unsettled)}, {"stuck", int64(s.Stuck)},
	} {
		if f.n != 0 {
			left = append(left, fmt.Sprintf("%s has %s: %d", p.name, f.name, f.n))
		}
	}
	return left
}

// isMistaken says whether the broker may have taken a settle of an older message for one of this: see Kind.Confuses. The older
// one was under way when the topic was made anew, or finished by somebody who was cut off and said so later.
func (r *run) isMistaken(n int) bool {
	b := r.book
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stored[n]
	if !r.kind.Confuses || s.epoch == 0 {
		return false
	}
	for _, e := range b.entries {
		old := b.stored[e.message]
		same := old.topic == s.topic && old.offset == s.offset && old.epoch < s.epoch
		if same && (e.ended.IsZero() || e.ended.After(old.goneAt.Add(-4*r.lease()))) {
			return true
		}
	}
	return false
}

// keptLetters are the messages that the topic of dead letters has.
func (r *run) keptLetters() (map[int]bool, error) {
	kept := map[int]bool{}
	if !r.schedule.Settings.Letters {
		return kept, nil
	}
	ms, err := r.world.Messages(letterTopic)
	if err != nil {
		return nil, fmt.Errorf("reading the dead letters: %w", err)
	}
	for i := range ms {
		kept[numberOf(ms[i].Value)] = true
	}
	return kept, nil
}

// judge looks for what must not be, when all processes have ended.
func (r *run) judge() {
	for _, p := range r.processes {
		p.judge()
	}
	r.hearNacks()
	r.judgeRepeats()
	r.judgeAttempts()
	r.judgeOrder()
	r.judgeFloors()
	r.judgeOutputs()
}

// judgeGoodbyes: who has ended, and was in no trouble since it was told to, is no member any more: others need not wait for the
// end of its session.
func (r *run) judgeGoodbyes() {
	world, ok := r.world.(roster)
	if !ok {
		return
	}
	members := world.Members()
	for _, p := range r.processes {
		if p.hasEnded() && p.err == nil && !p.isDead() && slices.Contains(members, p.name) &&
			!r.book.troubledAt(p, -1, p.stopped, time.Now(), r.lease()) {
			r.book.find("%s has ended, and the broker counts it as a member", p.name)
		}
	}
}

// judge looks at what a process has told, and what it has left.
func (p *process) judge() {
	if !p.hasEnded() {
		return
	}
	b := p.run.book
	dead, stuck := p.isDead(), errors.Is(p.err, consumer.ErrStuck)
	if p.err != nil && !dead && !stuck && !b.troubledAt(p, -1, p.stopped, time.Now(), 0) {
		b.find("%s has ended with %v", p.name, p.err)
	}
	e := p.events
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != consumer.Stopped {
		b.find("%s has ended and its last state is %v", p.name, e.state)
	}
	if dead || stuck {
		return
	}
	for _, s := range p.spies {
		if n, open := s.left(); n > 0 || open > 0 {
			b.find("%s has ended and left %d messages that were not settled, and %d claims that have not ended", p.name, n, open)
		}
	}
	if has := p.c.Stats(); has.InFlight != 0 || has.Parked != 0 || has.Lanes != 0 || has.Waiting != 0 {
		b.find("%s has ended and has in flight %d, parked %d, lanes %d, waiting %d", p.name,
			has.InFlight, has.Parked, has.Lanes, has.Waiting)
	}
	if e.drained > 1 || e.drained == 0 && len(p.spies) > 0 && e.handled > 0 {
		b.find("%s has told %d times that it is drained", p.name, e.drained)
	}
	p.judgeCounts()
}

// judgeCounts: each nil and each Skip is told once. Where a handler was given up its late result is void, or not, by a hair's
// breadth.
func (p *process) judgeCounts() {
	e, s := p.events, p.run.schedule.Settings
	if s.Batch > 0 && s.ByKey && s.Order != consumer.OrderNone {
		return // what of a batch is void, the engine knows alone
	}
	var nils, skips int64
	for _, run := range p.run.book.entries {
		switch {
		case run.process != p || run.outcome != ledger.Done:
		case run.act == Skip:
			skips++
		default:
			nils++
		}
	}
	void := int64(e.replaced * max(1, s.Batch))
	if e.handled > nils || e.handled < nils-void {
		p.run.book.find("%s: handlers returned nil %d times, and it told of %d", p.name, nils, e.handled)
	}
	if e.skipped > skips || e.skipped < skips-void {
		p.run.book.find("%s: handlers returned Skip %d times, and it told of %d", p.name, skips, e.skipped)
	}
}

// settleWithin is how long after a handler's return its settle is on its way, when nothing is wrong.
const settleWithin = 250 * time.Millisecond

// judgeRepeats holds the duplicates within their bound. A message that was handled may be handled again only if
//
//   - one of the two processes was in trouble (killed, frozen, cut off, or the broker was) after it was given the message and
//     before settleWithin had passed since its handler returned; for what lasts, also within a lease of its end, for only then
//     it is known what the trouble has cost. A light trouble counts where another one was within a lease of it; or
//   - either handler returned after the end of its context: it took longer than the drain, or than RevokeWait; or
//   - it was given up as stuck: its late result is void; or
//   - its process has told that settles are unconfirmed, and there was trouble anywhere: a group that waits for a member in
//     trouble takes no commits from the others; or
//   - a third process gave it back while it was cut off, and the broker heard of that when the message was another's: it takes it
//     from that one, for it does not ask whose word it is. Who sent it in time cannot call it back.
//
// So a stop, a pause and a partition that moves allow none, and a trouble allows those that its process had or had just
// finished: the bound in docs/guarantees.md, message by message. What goes through retry topics, or to the dead letters, may be
// there twice after any trouble since somebody was given it first, for then the copy was made and the original not yet settled.
func (r *run) judgeRepeats() {
	done := map[int][]*entry{}
	void := map[int]bool{} // a late result is void, or came after all
	for _, e := range r.book.entries {
		if e.outcome == ledger.Done {
			done[e.message] = append(done[e.message], e)
		}
		void[e.message] = void[e.message] || e.late || r.gaveUp(e)
	}
	for n := range r.book.stored {
		slices.SortFunc(done[n], func(x, y *entry) int { return cmp.Compare(x.end, y.end) })
		for i := 1; i < len(done[n]) && !r.isMistaken(n); i++ {
			r.judgeRepeat(n, done[n][i-1], done[n][i])
		}
		if !void[n] && !r.isMistaken(n) {
			r.judgeLetters(n, done[n])
		}
	}
}

// judgeRepeat looks for a reason why a message was handled by two runs.
func (r *run) judgeRepeat(n int, before, again *entry) {
	b := r.book
	for _, e := range []*entry{before, again} {
		given := b.givenBefore(n, e)
		if e.late || r.gaveUp(e) || b.hitAt(e.process, n, given, e.ended.Add(settleWithin), r.lease()) {
			return
		}
	}
	if b.unconfirmed(before, again) && b.troubledAt(nil, n, b.givenFirst(n), again.began, r.lease()) {
		return
	}
	if r.schedule.Settings.Spill && b.troubledAt(nil, n, b.givenFirst(n), again.began, r.lease()) {
		return
	}
	if r.wasNackedLate(n, before, again) {
		return
	}
	b.find("m%d was handled by %s, which was in no trouble then, and again by %s", n, before.process.name, again.process.name)
}

// flushed is how soon after a cut what it kept back has arrived.
const flushed = 10 * time.Millisecond

// wasNackedLate says whether somebody's nack of a message came with the end of a cut that began before the processes of two runs
// were given it, and after which one of them was.
func (r *run) wasNackedLate(n int, before, again *entry) bool {
	first, last := r.book.givenBefore(n, before), r.book.givenBefore(n, again)
	if last.Before(first) {
		first, last = last, first
	}
	return slices.ContainsFunc(r.nacks[n], func(heard time.Time) bool {
		return !last.Before(heard) && slices.ContainsFunc(r.book.troubles, func(t trouble) bool {
			return t.holds && !first.Before(t.from) && !heard.Before(t.until) && heard.Sub(t.until) <= flushed
		})
	})
}

// hearNacks takes what the broker heard of nacks, by message.
func (r *run) hearNacks() {
	world, ok := r.world.(nackHearer)
	if !ok {
		return
	}
	for _, heard := range world.Nacks() {
		for n, s := range r.book.stored {
			if s.topic == heard.topic && s.offset == heard.offset && (s.goneAt.IsZero() || heard.at.Before(s.goneAt)) {
				r.nacks[n] = append(r.nacks[n], heard.at)
				break
			}
		}
	}
}

// unconfirmed says whether a run's process has told, before another run, that settles since the first one may not hold.
func (b *book) unconfirmed(e, again *entry) bool {
	return slices.ContainsFunc(e.process.events.unconfirmed, func(at time.Time) bool {
		return !at.Before(e.ended) && !at.After(again.began)
	})
}

// judgeLetters: a message has one dead letter, and was not handled then, or there was trouble.
func (r *run) judgeLetters(n int, done []*entry) {
	b := r.book
	last := b.lastLetter[n]
	for _, e := range done {
		if e.ended.After(last) {
			last = e.ended
		}
	}
	if letters := b.letters[n]; letters > 0 && letters+len(done) > 1 && !b.troubledAt(nil, n, b.givenFirst(n), last, r.lease()) {
		b.find("m%d has %d dead letters and was handled %d times, without any trouble", n, letters, len(done))
	}
}

// tries are the runs of a message that failed.
type tries struct {
	failed  int
	never   bool // one was Permanent
	attempt int  // the highest count of the broker's
	// first and last end of a failed run.
	first, last time.Time
}

// judgeAttempts: nothing is given up before its attempts are used up, or its time, unless it shall make room for others. Where
// the broker counts deliveries, three times as many are enough, whether a handler saw them or not; but one run has failed.
func (r *run) judgeAttempts() {
	s := r.schedule.Settings
	for n, t := range r.tries() {
		enough := t.failed >= s.Attempts || s.MakeRoom || r.kind.Shared && t.attempt >= 3*s.Attempts ||
			s.GiveUp > 0 && t.last.Sub(t.first)+longestWait > time.Duration(s.GiveUp)
		if r.book.letters[n] > 0 && !t.never && (t.failed == 0 || !enough) {
			r.book.find("m%d has a dead letter after %d failed runs, of %d", n, t.failed, s.Attempts)
		}
	}
}

// longestWait is the longest delay that a handler asks for. Backoffs and the steps of retry topics are shorter.
const longestWait = 600 * time.Millisecond

func (r *run) tries() map[int]*tries {
	all := map[int]*tries{}
	for n := range r.book.letters {
		all[n] = &tries{}
	}
	for _, e := range r.book.entries {
		t := all[e.message]
		if t == nil {
			continue
		}
		t.never = t.never || e.act == Never
		t.attempt = max(t.attempt, int(e.attempt))
		// A handler returns an error in the instant of its process's death; the engine may still have told the broker of it.
		if !e.failed && !e.stood && !r.gaveUp(e) && (e.outcome != ledger.Running || !e.process.isDead()) {
			continue
		}
		t.failed++
		at := e.ended
		if r.gaveUp(e) { // it returned later than that
			at = e.called.Add(time.Duration(r.schedule.Settings.Timeout))
		}
		last := e.ended
		if last.IsZero() { // it was killed
			at, last = e.began, e.process.stopped
		}
		if t.first.IsZero() || at.Before(t.first) {
			t.first = at
		}
		if last.After(t.last) {
			t.last = last
		}
	}
	return all
}

// untold is how many messages were dropped before anybody was given them, where the partition was somebody's by then, and not
// told in a gap yet. Of a topic that was made anew nobody knows how many there were; and where processes share a partition only
// who sees both sides of the gap can tell.
func (r *run) untold() (n int64) {
	if r.kind.Shared || r.schedule.has(Recreate) {
		return 0
	}
	r.book.mu.Lock()
	for m, s := range r.book.stored {
		if s.held && r.book.givenFirst(m).IsZero() {
			n++
		}
	}
	r.book.mu.Unlock()
	for _, p := range r.processes {
		p.events.mu.Lock()
		n -= p.events.skips
		p.events.mu.Unlock()
	}
	return max(0, n)
}

// givenFirst is when a process was given the message first.
func (b *book) givenFirst(n int) (first time.Time) {
	for x, at := range b.had {
		if x.message == n && (first.IsZero() || at[0].Before(first)) {
			first = at[0]
		}
	}
	return first
}

// givenBefore is when a run's process was given its message: the last time before it began.
func (b *book) givenBefore(n int, e *entry) (given time.Time) {
	for _, at := range b.had[had{n, e.process}] {
		if !at.After(e.began) {
			given = at
		}
	}
	return given
}

// lease is the schedule's.
func (r *run) lease() time.Duration { return time.Duration(r.schedule.Settings.Lease) }

// gaveUp says whether a run took so long that it was given up.
func (r *run) gaveUp(e *entry) bool {
	limit := time.Duration(r.schedule.Settings.Timeout)
	return limit > 0 && e.ended.Sub(e.called) >= limit+time.Duration(r.schedule.Settings.Lease)
}

// troubledAt says whether a process, nil: any, was in trouble with a message between two instants. What lasts is trouble for so
// much longer.
func (b *book) troubledAt(p *process, message int, from, until time.Time, longer time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.troubles, func(t trouble) bool { return t.isAt(p, message, from, until, longer) })
}

// hitAt is troubledAt without the light troubles that came alone.
func (b *book) hitAt(p *process, message int, from, until time.Time, longer time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, t := range b.troubles {
		if t.isAt(p, message, from, until, longer) && (!t.light || b.isJoined(i, longer)) {
			return true
		}
	}
	return false
}

// isJoined says whether another trouble of the same process was within a time of one. It needs b.mu.
func (b *book) isJoined(i int, within time.Duration) bool {
	t := b.troubles[i]
	for j, other := range b.troubles {
		if j != i && other.isAt(t.process, -1, t.from.Add(-within), t.until.Add(within), within) {
			return true
		}
	}
	return false
}

// isAt says whether it befell a process, nil: any, with a message, between two instants. What lasts is trouble for so much
// longer.
func (t trouble) isAt(p *process, message int, from, until time.Time, longer time.Duration) bool {
	end := t.until
	if !t.until.Equal(t.from) {
		end = end.Add(longer)
	}
	mine := (p == nil || t.process == nil || t.process == p) && (t.message < 0 || t.message == message)
	return mine && !t.from.After(until) && !end.Before(from)
}

// laneOf names what is handled one after the other with m, which came when its topic was made anew epoch times; "": nothing.
func (r *run) laneOf(m *consumer.Message, epoch int) string {
	switch {
	case r.schedule.Settings.Order == consumer.OrderPartition:
		return fmt.Sprintf("%s/%d#%d", m.Topic, m.Partition, epoch)
	case r.schedule.Settings.Order == consumer.OrderKey && m.Key != nil:
		return fmt.Sprintf("%s/%d#%d %s", m.Topic, m.Partition, epoch, m.Key)
	}
	return ""
}

// judgeOverlap: of a lane one run is under way at a time. In another process a run may still go on that was told to end, or
// that a frozen process is at, also after its thaw, until it has heard what it has lost. It needs book.mu.
func (r *run) judgeOverlap(e, other *entry) {
	switch {
	case other.process == e.process && other.batch != e.batch:
	case other.process == e.process:
		return
	case !r.ordered || other.zombie || other.process.isDead() || other.process.isBehind() || over(other.claim) || r.stolen():
		return
	}
	r.book.findHere("%s begins m%d while %s is at m%d, of the same lane %s", e.process.name, e.message,
		other.process.name, other.message, e.lane)
}

// stolen says whether a partition was stolen so shortly that its owner may not know it yet.
func (r *run) stolen() bool {
	r.ownersMu.Lock()
	defer r.ownersMu.Unlock()
	return r.stolenNow()
}

// stolenNow needs r.ownersMu.
func (r *run) stolenNow() bool {
	return time.Since(r.stolenAt) < time.Duration(r.schedule.Settings.Lease)
}

// steals writes down that a partition is about to be stolen.
func (r *run) steals() {
	r.ownersMu.Lock()
	defer r.ownersMu.Unlock()
	r.stolenAt = time.Now()
}

// robbed says whether m is of a partition that was stolen from this process and that somebody else has.
func (p *process) robbed(m *consumer.Message) bool {
	p.run.ownersMu.Lock()
	defer p.run.ownersMu.Unlock()
	owner := p.run.owners[fmt.Sprintf("%s/%d", m.Topic, m.Partition)]
	return owner != nil && owner != p && p.run.stolenNow()
}

// judgeOrder checks the begins of the runs against each other, where the order holds over all processes. What a process did
// while it was frozen, or with a context that was over, counts as done and not as begun.
func (r *run) judgeOrder() {
	b := r.book
	if r.schedule.Settings.Order == consumer.OrderNone || !r.ordered {
		return
	}
	var runs []ledger.Run
	lanes := map[int64]int64{}
	letters := slices.Clone(b.stamps)
	for _, e := range b.entries {
		if e.lane == "" {
			continue
		}
		seq := r.placeOf(e)
		if gone := b.stored[e.message].gone; gone > 0 { // nothing waits for it any more, nor when it fails later
			letters = append(letters, ledger.Letter{Seq: seq, Pid: e.process.no, At: gone})
			letters = append(letters, ledger.Letter{Seq: seq, Pid: e.process.no, At: max(gone, e.end)})
		}
		if e.zombie || e.batch != nil && e.outcome == ledger.Running {
			if e.outcome == ledger.Done {
				letters = append(letters, ledger.Letter{Seq: seq, Pid: e.process.no, At: e.end})
			}
			continue
		}
		lanes[int64(e.message)] = hash(e.lane)
		runs = append(runs, ledger.Run{
			ID: int64(e.message), Seq: seq, Pid: e.process.no, Begin: e.begin, End: e.end, Outcome: e.outcome,
		})
	}
	slices.SortFunc(runs, func(x, y ledger.Run) int { return cmp.Compare(x.Begin, y.Begin) })
	o := ledger.Inspect(runs, letters, func(id int64) int64 { return lanes[id] })
	for _, what := range o.Found {
		b.find("order: %s", what)
	}
}

// placeOf is where a message stands among all: by topic, partition, how often the topic was made anew, and offset. It needs
// book.mu.
func (r *run) placeOf(e *entry) int64 {
	s := &r.book.stored[e.message]
	return e.seq + int64(slices.Index(r.schedule.Inputs(), s.topic))<<50 + int64(s.epoch)<<32
}

func hash(s string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return int64(h.Sum64() >> 1)
}

// judgeFloors: what is committed never goes back, while the log is the same and the broker forgets nothing.
func (r *run) judgeFloors() {
	if r.schedule.has(Forget, Recreate) {
		return
	}
	for where, floors := range r.floors {
		for i := 1; i < len(floors); i++ {
			if floors[i] < floors[i-1] {
				r.book.find("the committed offset of %s went back: %v", where, floors)
				break
			}
		}
	}
}

// judgeOutputs looks at what handlers have emitted, as it stands in the log for who reads what is committed. Outputs and ack are
// one (broker.Emitter), so that
//
//   - an output is there at most once, and only where the engine has acked with it and was not told that the message was lost;
//   - it is there only for a run that returned nil: what a run emitted that failed, was cancelled, or returned Skip, is dropped;
//   - of a message that is handled one run has its outputs there, all of them, or its dead letter is there, or it was skipped,
//     and never two of these. What the broker was made to deliver again is another message in that. What it has dropped (trimmed,
//     or with the whole topic) may have none: who was to handle it has never had it, or could not ack it any more;
//   - but an ack that said nil holds, whatever became of the message since, unless its process was killed or has told that
//     settles of that partition are unconfirmed;
//   - their order is that of the acks: see judgeOutputOrder.
func (r *run) judgeOutputs() {
	if r.schedule.Settings.Emits == 0 || r.outputs == nil {
		return
	}
	ran, there := map[output]*entry{}, map[output]int{}
	for _, e := range r.book.entries {
		ran[output{e.message, e.nth, 0}] = e
	}
	for i := range r.outputs {
		o, ours := outputOf(r.outputs[i].Value)
		e := ran[output{o.message, o.nth, 0}]
		if !ours || e == nil {
			r.book.find("an output is there that nobody emitted: %q", r.outputs[i].Value)
			continue
		}
		if there[o]++; there[o] == 1 {
			r.judgeOutput(o, e)
		}
	}
	for o, n := range there {
		if n > 1 {
			r.book.find("output %v is there %d times", o, n)
		}
	}
	for n := range r.book.stored {
		r.judgeOutputsOf(n, there)
	}
	for o, x := range r.book.offers {
		if there[o] == 0 && x.holds && !x.doubted && !x.process.isDead() {
			r.book.find("output %v is not there: %s has acked with it, and told of nothing since", o, x.process.name)
		}
	}
	r.judgeOutputOrder()
}

// judgeOutput looks at one that is there.
func (r *run) judgeOutput(o output, e *entry) {
	switch x := r.book.offers[o]; {
	case e.outcome != ledger.Done || e.act == Skip:
		r.book.find("output %v is there, of a run that %s has %v, and told to be %q", o, e.process.name, e.outcome, e.act)
	case x == nil:
		r.book.find("output %v is there, and nobody has acked with it", o)
	case x.lost:
		r.book.find("output %v is there, and its ack by %s said that the message was lost", o, x.process.name)
	}
}

// judgeOutputsOf looks at those of one message.
func (r *run) judgeOutputsOf(n int, there map[output]int) {
	b, makes := r.book, r.schedule.makes(n)
	runs, skipped := 0, false
	for _, e := range b.entries {
		if e.message != n {
			continue
		}
		has := 0
		for i := range makes {
			has += min(1, there[output{n, e.nth, i}])
		}
		skipped = skipped || e.act == Skip && e.outcome == ledger.Done
		runs += min(1, has)
		if has > 0 && has < makes {
			b.find("m%d has %d outputs of run %d, which emitted %d", n, has, e.nth, makes)
		}
	}
	letters := r.inLetters[n]
	switch most := 1 + r.deliveredAgain(n); {
	case runs+letters > most:
		b.find("m%d has outputs of %d runs and %d dead letters, which is %d too many", n, runs, letters, runs+letters-most)
	case makes > 0 && runs+letters == 0 && !skipped && b.stored[n].goneAt.IsZero():
		b.find("m%d has no outputs, and is neither dead-lettered nor skipped", n)
	}
}

// deliveredAgain is how often the broker was made to deliver a message again.
func (r *run) deliveredAgain(n int) (times int) {
	for _, t := range r.book.troubles {
		if t.message == n {
			times++
		}
	}
	return times
}

// judgeOutputOrder looks at each partition of the outputs by itself. There the outputs of a run stand in the order in which it
// emitted them; those of two acks under one claim in the order of these, where one call was over before the other began; and
// where an order is promised, those of a lane in the order of its messages, whoever has acked them. What was delivered again is
// in no order; nor is a message whose dead letter was acked: others go on behind it, and where its process died before the letter
// was stored, or gave the partition away, it is handled again.
func (r *run) judgeOutputOrder() {
	b := r.book
	byPlace := slices.SortedFunc(slices.Values(r.outputs), func(x, y broker.Message) int {
		return cmp.Or(cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.Offset, y.Offset))
	})
	type inLane struct {
		lane string
		to   int32
	}
	type ofClaim struct {
		claim *broker.Claim
		to    int32
	}
	lanes, asked, last := map[inLane]*entry{}, map[ofClaim]output{}, map[output]int{}
	for _, m := range byPlace {
		o, _ := outputOf(m.Value)
		x, i := b.offers[o], slices.IndexFunc(b.entries, func(e *entry) bool { return e.message == o.message && e.nth == o.nth })
		if x == nil || i < 0 {
			continue // which is a finding of its own
		}
		e := b.entries[i]
		run := output{o.message, o.nth, int(m.Partition)}
		if before, some := last[run]; some && before > o.index {
			b.find("output %v stands behind output %d of its run", o, before)
		}
		last[run] = o.index
		claim := ofClaim{x.claim, m.Partition}
		before, some := asked[claim]
		if some && x.said < b.offers[before].asked {
			b.find("output %v stands behind %v, which was acked later under the same claim", o, before)
		}
		if !some || x.asked > b.offers[before].asked {
			asked[claim] = o
		}
		if e.lane == "" || !r.ordered || r.deliveredAgain(o.message) > 0 || b.letters[o.message] > 0 {
			continue
		}
		lane := inLane{e.lane, m.Partition}
		if first := lanes[lane]; first != nil && r.placeOf(first) > r.placeOf(e) {
			b.find("output %v stands behind those of m%d, which comes later in lane %s", o, first.message, e.lane)
		}
		lanes[lane] = e
	}
}
