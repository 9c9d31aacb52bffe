package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/longshoremq/longshore/integration/ledger"
)

// settleWithin is how long after a handler's return its settle is on its way, when nothing is wrong.
const settleWithin = 250 * time.Millisecond

// judgeRepeats holds the duplicates within their bound. A message that was handled may be handled again only if
//
//   - one of the two processes was in trouble (killed, frozen, cut off, or the broker was) after it was given the message and
//     before settleWithin had passed since its handler returned; for what lasts, also within a lease of its end, for only then
//     it is known what the trouble has cost. A light trouble counts where another one was within a lease of it; or
//   - either handler returned after the end of its context: it took longer than the drain, or than RevokeWait; or just when
//     RevokeWait was over; or
//   - it was given up as stuck: its late result is void; or
//   - its process has told that settles are unconfirmed, and there was trouble anywhere: a group that waits for a member in
//     trouble takes no commits from the others; or
//   - its process has told that settles are unconfirmed, and its topic was made anew before it was handled: a process that does
//     not know of that yet gets messages of the new one, and does not ack them when it learns it; or
//   - its process has told that settles are unconfirmed, and a topic was missing then that outputs or letters go to: the
//     transaction that finds that out is aborted, with all that is in it; or
//   - the group assigns by heartbeats, and its topic was made anew before it was handled, while a process was in trouble that
//     was not over by then: at its end that one commits what it had of the old topic. A commit names the topic, and not which
//     one of that name, so whoever is assigned the partition next begins it anew; or
//   - a third process gave it back while it was cut off, and the broker heard of that when the message was another's: it takes it
//     from that one, for it does not ask whose word it is. Who sent it in time cannot call it back; or
//   - the broker forgot who has it, gave it to a second one, and either of the two gave it back.
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
		if e.late || e.overdue || r.gaveUp(e) || b.hitAt(e.process, n, given, e.ended.Add(settleWithin), r.lease()) {
			return
		}
	}
	if b.unconfirmed(before, again.began) && b.troubledAt(nil, n, b.givenFirst(n), again.began, r.lease()) {
		return
	}
	if b.unconfirmed(before, again.began) && b.renewedBefore(n, before.ended, r.lease()) {
		return
	}
	if r.lacked(before, again.began) {
		return
	}
	if r.setBack(n, before, again) {
		return
	}
	if r.schedule.Settings.Spill && b.troubledAt(nil, n, b.givenFirst(n), again.began, r.lease()) {
		return
	}
	if r.wasNackedLate(n, before, again) || r.wasNackedByOneOfTwo(n, before, again) {
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

// unwritten is how old a delivery may be that a broker has not written down yet.
const unwritten = time.Second

// wasNackedByOneOfTwo says whether the broker forgot that it had given a message to somebody, gave it to another one, and then
// heard a nack of it, before the processes of two runs had both been given it.
func (r *run) wasNackedByOneOfTwo(n int, before, again *entry) bool {
	last := r.book.givenBefore(n, before)
	if at := r.book.givenBefore(n, again); at.After(last) {
		last = at
	}
	givings := r.book.givings(n)
	for i := range max(0, len(givings)-1) {
		first, second := givings[i], givings[i+1]
		nacked := func(from, until time.Time) bool {
			return slices.ContainsFunc(r.nacks[n], func(heard time.Time) bool { return !heard.Before(from) && !heard.After(until) })
		}
		forgotten := slices.ContainsFunc(r.book.troubles, func(t trouble) bool {
			recent := !first.at.Before(t.from) || !first.at.Before(t.until.Add(-unwritten))
			return t.forgets && recent && !second.at.Before(t.until)
		})
		if forgotten && first.process != second.process && !nacked(first.at, second.at) && nacked(second.at, last) {
			return true
		}
	}
	return false
}

// hearNacks takes what the broker heard of nacks, by message. Where the partitions are somebody's, a broker asks whose they are.
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

// unconfirmed says whether a run's process has told, before an instant, that settles since that run may not hold.
func (b *book) unconfirmed(e *entry, until time.Time) bool {
	return slices.ContainsFunc(e.process.events.unconfirmed, func(at time.Time) bool {
		return !at.Before(e.ended) && !at.After(until)
	})
}

// lacked says whether it has told so while a topic was missing that outputs or letters go to.
func (r *run) lacked(e *entry, until time.Time) bool {
	return r.book.unconfirmed(e, until) && e.ended.Before(r.madeAt)
}

// renewedBefore says whether the topic of a message was made anew before an instant, by at most within.
func (b *book) renewedBefore(n int, instant time.Time, within time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.renewals[b.stored[n].topic], func(at time.Time) bool {
		return !at.After(instant) && instant.Sub(at) <= within
	})
}

// setBack says whether a commit of a topic's earlier one may have come between two runs of a message: somebody was in trouble
// when the topic was made anew, and until the first of them had ended.
func (r *run) setBack(n int, before, again *entry) bool {
	b := r.book
	b.mu.Lock()
	defer b.mu.Unlock()
	return r.schedule.Settings.Assigned && slices.ContainsFunc(b.renewals[b.stored[n].topic], func(anew time.Time) bool {
		return !anew.After(before.began) && slices.ContainsFunc(b.troubles, func(t trouble) bool {
			return !t.from.After(anew) && !t.until.Add(settleWithin).Before(before.ended) && !t.until.After(again.began)
		})
	})
}

// judgeLetters: a message has one dead letter, and was not handled then, or there was trouble. A run whose settle its process has
// told as unconfirmed, for a topic was missing, does not count.
func (r *run) judgeLetters(n int, done []*entry) {
	b := r.book
	last := b.lastLetter[n]
	done = slices.DeleteFunc(slices.Clone(done), func(e *entry) bool { return r.lacked(e, last) })
	for _, e := range done {
		if e.ended.After(last) {
			last = e.ended
		}
	}
	if letters := b.letters[n]; letters > 0 && letters+len(done) > 1 && !b.troubledAt(nil, n, b.givenFirst(n), last, r.lease()) {
		b.find("m%d has %d dead letters and was handled %d times, without any trouble", n, letters, len(done))
	}
}

// A giving is when a process was given a message.
type giving struct {
	process *process
	at      time.Time
}

// givings are those of a message, one after the other.
func (b *book) givings(n int) (all []giving) {
	for x, times := range b.had {
		if x.message != n {
			continue
		}
		for _, at := range times {
			all = append(all, giving{x.process, at})
		}
	}
	slices.SortFunc(all, func(x, y giving) int { return x.at.Compare(y.at) })
	return all
}

// givenFirst is when a process was given the message first.
func (b *book) givenFirst(n int) (first time.Time) {
	if all := b.givings(n); len(all) > 0 {
		first = all[0].at
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

// gaveUp says whether a run took so long that it was given up.
func (r *run) gaveUp(e *entry) bool {
	limit := time.Duration(r.schedule.Settings.Timeout)
	return limit > 0 && e.ended.Sub(e.called) >= limit+time.Duration(r.schedule.Settings.Lease)
}
