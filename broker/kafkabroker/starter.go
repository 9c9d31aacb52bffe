package kafkabroker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A starter finds out where partitions begin. Those that come together are asked for together, by one request of a kind to the
// coordinator and then to each leader: a request for each partition would be a connection for each.
type starter struct {
	cfg   *Config
	c     *cluster
	k     *coordinator
	txn   *transactor // nil: commits are no transactions
	m     membership
	atlas *atlas
	books *books
	h     *holdings // is told
	life  *kit.Life
	note  contact
	bells *bells
	begun *beginnings
}

// begin has it found out where partitions begin. It does not block.
func (x *starter) begin(bs []*start) {
	if len(bs) > 0 {
		x.life.Go(func() { x.run(bs, x.lookUp, toOffsets) })
	}
}

// run looks until it is known, or not wanted any more, or life has ended. look returns those of which it is to be tried again,
// and why; l is the line on which it asks.
func (x *starter) run(bs []*start, look func([]*start) ([]*start, error), l line) {
	open := openEnded{limit: openLimit * x.cfg.TransactionTimeout}
	for life := x.life.Context(); len(bs) > 0 && life.Err() == nil; {
		left, err := look(bs)
		if bs = stillWanted(left); len(bs) == 0 || x.answers(bs, err, &open) {
			x.note.rests(l)
		} else {
			x.note.on(l, time.Time{}, err)
			signal(x.bells.find)
		}
		if len(bs) > 0 {
			pause(life, rest(bs, time.Now()))
		}
		look, l = x.lookUp, toOffsets // others may have committed meanwhile
	}
}

// answers says whether what keeps partitions from their beginning is an answer, and tells of it where it keeps them for long.
func (x *starter) answers(bs []*start, err error, open *openEnded) bool {
	switch code := codeOf(err); {
	case replaced(code), code == kafka.RebalanceInProgress:
		// The next heartbeat tells us where the group is.
	case errors.Is(err, errDisputed), errors.Is(err, errOtherTopic): // a look tells, or the coordinator does when it knows
		x.undecided(bs)
	case code == kafka.OffsetMetadataTooLarge: // the next commit has less
	case code == codeUnstable: // a transaction is open that may change what is committed
		if took, long := open.seen(time.Now()); long {
			x.note.events.Say(broker.Event{Kind: broker.Warning, Err: fmt.Errorf("%w, open for %v: %w", errOpenEnded, took, err)})
		}
	case moved(err): // other partitions go on
		if !errors.Is(err, errNoLeader) { // else the poller looks again by itself, and to ask it more often would help nobody
			signal(x.bells.find)
		}
		for _, b := range bs {
			b.away.limit = cmp.Or(b.away.limit, unservedLimit)
			if took, long := b.away.seen(time.Now()); long {
				x.note.events.Say(broker.Event{Kind: broker.Warning, Err: unservedFor(b.partitionID, took, err)})
			}
		}
	default:
		return false
	}
	return true
}

// errUndecided: a coordinator that is cut off from the controller stays behind, and nothing else tells of it.
var errUndecided = errors.New("kafkabroker: a partition cannot begin before the group's coordinator has the topic that the " +
	"other brokers have")

// undecided tells of partitions that the coordinator keeps from their beginning for long.
func (x *starter) undecided(bs []*start) {
	for _, b := range bs {
		if !b.undecided() {
			continue
		}
		why := errDisputed
		if b.waits {
			why = errOtherTopic
		}
		b.away.limit = cmp.Or(b.away.limit, unservedLimit)
		if took, long := b.away.seen(time.Now()); long {
			x.note.events.Say(broker.Event{Kind: broker.Warning, Err: fmt.Errorf("%w: %s/%d, for %v: %w", errUndecided, b.topic, b.no,
				took, why)})
		}
	}
}

// rest is how long to wait before partitions are looked for again: longer where the coordinator keeps all of them for longer, for
// each look is three requests.
func rest(bs []*start, now time.Time) time.Duration {
	wait := time.Second
	for _, b := range bs {
		if b.away.since.IsZero() || !b.undecided() {
			return retryWait
		}
		wait = min(wait, absence{openEnded: b.away}.pause(now))
	}
	return wait
}

// lookUp reads what is committed. Where that is not enough the leaders are asked, each beside the others: one that does not
// answer holds up its own partitions only.
func (x *starter) lookUp(bs []*start) (left []*start, err error) {
	led, left, err := x.place(bs)
	if len(led) == 0 {
		return left, err
	}
	at, asked := x.positions(partitionsOf(led))
	if asked == nil {
		asked = x.recall(led, at)
	}
	if asked != nil {
		return bs, asked
	}
	var known, fresh, forgotten []*start
	agrees := x.coordinated(led)
	unclear := make(map[int32][]*start)
	for _, b := range led {
		if e := answerOf(b, at); e != nil {
			left, err = append(left, b), e
			continue
		}
		pos, ours, lapsed := x.books.forgotten(b, at[b.partitionID])
		if ours && !b.lapsed {
			forgotten = append(forgotten, b)
		}
		b.lapsed = lapsed
		switch b.read(pos); {
		case b.disputed(x.atlas.looks()), b.otherLog() && !agrees(b):
			left, err = append(left, b), cmp.Or(err, fmt.Errorf("%s/%d: %w", b.topic, b.no, errDisputed))
			signal(x.bells.find)
		case b.known():
			if b.book = x.books.of(b, b.at); b.book != nil {
				unclear[b.leader] = append(unclear[b.leader], b)
			} else {
				known = append(known, b)
			}
		default:
			if lapsed && x.cfg.Start.At != "none" {
				b.reset = fmt.Errorf("%s/%d: %w", b.topic, b.no, errForgotten)
			}
			unclear[b.leader] = append(unclear[b.leader], b)
			if b.fresh() {
				fresh = append(fresh, b)
			}
		}
	}
	x.tellForgotten(forgotten)
	if !x.mayBegin(fresh) {
		return nil, nil
	}
	x.h.lookedUp(known...)
	for leader, bs := range unclear {
		ask := func(bs []*start) ([]*start, error) { return x.ask(leader, bs) }
		x.life.Go(func() { x.run(bs, ask, toBroker(leader)) })
	}
	return left, err
}

// mayBegin tells of partitions that the group has nothing of; false: that ends the source.
func (x *starter) mayBegin(fresh []*start) bool {
	lines := x.begun.lines(x.cfg, fresh)
	if x.cfg.Start.At == "none" && len(fresh) > 0 {
		if len(lines) > 0 {
			x.h.end(fmt.Errorf("kafkabroker: %w", refusal(lines)))
		}
		return false
	}
	for _, line := range lines {
		x.note.events.Say(broker.Event{Kind: broker.Notice, Err: errors.New(line + ": " + x.cfg.Start.begins())})
	}
	return true
}

// tellForgotten tells of partitions that go on where we left them, for the group has forgotten that.
func (x *starter) tellForgotten(bs []*start) {
	by := make(map[string]int)
	for _, b := range bs {
		by[b.topic]++
	}
	for topic, n := range by {
		x.note.events.Say(broker.Event{Kind: broker.Warning, Err: fmt.Errorf("topic %s (%d of its partitions): %w; going on where we "+
			"left it", topic, n, errForgotten)})
	}
}

// positions reads what is committed.
func (x *starter) positions(ps []partitionID) (map[partitionID]position, error) {
	if x.txn != nil {
		return x.txn.positions(x.life.Context(), ps)
	}
	return x.k.positions(x.life.Context(), x.m.self(), ps)
}

// recall finds out how many partitions topics had when the group began with them, for those of which nothing is committed and
// that were to begin at their ends, or not at all. This process may have come later than such a partition, and what the others
// of its topic have committed tells.
func (x *starter) recall(bs []*start, at map[partitionID]position) error {
	if x.cfg.Start.At != "latest" && x.cfg.Start.At != "none" {
		return nil
	}
	fresh := make(map[string][]*start)
	var others []partitionID
	for _, b := range bs {
		if pos, answered := at[b.partitionID]; !answered || pos.err != nil || pos.offset >= 0 {
			continue
		}
		if fresh[b.topic] == nil {
			for no := range int32(b.count) {
				others = append(others, partitionID{b.topic, no})
			}
		}
		fresh[b.topic] = append(fresh[b.topic], b)
	}
	if others = slices.DeleteFunc(others, func(p partitionID) bool { _, is := at[p]; return is }); len(others) > 0 {
		more, err := x.positions(others)
		if err != nil {
			return err
		}
		maps.Copy(at, more)
	}
	for _, bs := range fresh {
		first, err := begunWith(bs[0], at)
		if err != nil {
			return err
		}
		for _, b := range bs {
			b.first = cmp.Or(first, b.first)
		}
	}
	return nil
}

// begunWith is how many partitions the topic of b had when the group began with it (progress.first), as the least of what is
// committed tells; 0: nothing does.
func begunWith(b *start, at map[partitionID]position) (first int, err error) {
	for no := range int32(b.count) {
		pos := at[partitionID{b.topic, no}]
		if pos.err != nil {
			err = fmt.Errorf("reading committed offsets: %s/%d: %w", b.topic, no, pos.err)
			continue
		}
		p, _ := decodeMetadata(pos.offset, pos.metadata)
		if p.first > 0 && p.log == b.id.log() && (first == 0 || p.first < first) {
			first = p.first
		}
	}
	if first > 0 {
		err = nil
	}
	return first, err
}

// place notes who leads partitions. left are those that nobody does, and those of a topic that was made anew and is not the
// group's yet. What we would do of the new one until the group assigns it could not be committed where it then goes to another
// member, and would be done again.
func (x *starter) place(bs []*start) (led, left []*start, err error) {
	var waits error
	for _, b := range bs {
		b.place, b.waits = x.atlas.of(b.partitionID), false
		switch {
		case b.leader < 0:
			left, err = append(left, b), b.unled()
		case !x.m.assigns(b.partitionID, b.id):
			b.await()
			b.waits = true
			left, waits = append(left, b), fmt.Errorf("%s/%d: %w", b.topic, b.no, errOtherTopic)
		default:
			led = append(led, b)
		}
	}
	return led, left, cmp.Or(err, waits)
}

// errOtherTopic: what the group has assigned and what the brokers have now is not the same topic.
var errOtherTopic = errors.New("the group does not assign the topic of that name yet")

// errDisputed: what is committed and what the brokers had at our last look is not the same topic.
var errDisputed = errors.New("what is committed is not of the topic that was there at the last look")

// coordinated says whether the group's coordinator has the same topic as our looks do; it is asked once, of all of them. Where
// our looks go to a broker that is behind, each of them tells of the topic that was there before: what is committed of the new
// one would be taken for that of an older one, and all of the new one would be done again.
func (x *starter) coordinated(bs []*start) func(*start) bool {
	ask := sync.OnceValue(func() map[string]topic {
		var names []string
		for _, b := range bs {
			if !slices.Contains(names, b.topic) {
				names = append(names, b.topic)
			}
		}
		ts, _ := x.k.topics(x.life.Context(), names) // without an answer it is looked up again
		return ts
	})
	return func(b *start) bool {
		t, known := ask()[b.topic]
		return known && t.err == nil && (t.id == b.id || t.id == (topicID{}))
	}
}

// answerOf says what is wrong with the answer to what is committed of a partition.
func answerOf(b *start, at map[partitionID]position) error {
	pos, answered := at[b.partitionID]
	switch {
	case !answered:
		return fmt.Errorf("reading committed offsets: no answer for %s/%d: %w", b.topic, b.no, errShort)
	case pos.err != nil:
		return fmt.Errorf("reading committed offsets: %s/%d: %w", b.topic, b.no, pos.err)
	}
	return nil
}

// ask asks a leader: whether books may be gone on with, and where the others begin by policy.
func (x *starter) ask(leader int32, bs []*start) (left []*start, err error) {
	var booked, resets []*start
	for _, b := range bs {
		if b.book != nil {
			booked = append(booked, b)
		} else {
			resets = append(resets, b)
		}
	}
	left, err = x.goOn(leader, booked)
	late, e := x.resetAll(leader, resets)
	if len(late) > 0 {
		left, err = append(left, late...), e
	}
	return left, err
}

// goOn continues books where the log still has what was looked through. An error is worth another try.
func (x *starter) goOn(leader int32, bs []*start) (left []*start, err error) {
	if len(bs) == 0 {
		return nil, nil
	}
	epochs := make(map[partitionID]int32, len(bs))
	for _, b := range bs {
		epochs[b.partitionID] = b.book.epoch
	}
	ends, asked := x.c.epochEnds(x.life.Context(), leader, epochs)
	var known []*start
	for _, b := range bs {
		end, answered := ends[b.partitionID]
		switch {
		case asked != nil:
			end.err = asked
		case !answered:
			end.err = fmt.Errorf("looking up a leader epoch: no answer for %s/%d: %w", b.topic, b.no, errShort)
		}
		k := b.book
		b.book = nil
		switch {
		case end.err != nil && refused(end.err): // then as after a restart
		case end.err != nil:
			left, err = append(left, b), end.err
			continue
		case end.epoch == k.epoch && end.offset >= k.top():
			b.progress, b.book = k.progress, k
		}
		known = append(known, b)
	}
	x.h.lookedUp(known...)
	return left, err
}

// resetAll finds the first offsets by policy, and commits them: else what comes before the first commit would be skipped after a
// crash (start latest).
func (x *starter) resetAll(leader int32, bs []*start) (left []*start, err error) {
	by := make(map[int64][]*start)
	var found []*start
	for _, b := range bs {
		if c := (*cutOff)(nil); errors.As(b.reset, &c) && c.log == b.id.log() {
			committed := b.progress
			if b.progress, b.epoch = c.progress, c.epoch; x.txn != nil {
				b.progress = c.with(committed)
			}
			found = append(found, b)
			continue
		}
		b.epoch = -1
		at := x.cfg.resetTime(b.reset)
		if b.added() && b.reset == nil && at == timeEnd { // all of it is new: what was written before we found it is nobody else's
			at = timeStart
		}
		by[at] = append(by[at], b)
	}
	for at, bs := range by {
		of, failed, e := x.first(leader, bs, at)
		found = append(found, of...)
		if len(failed) > 0 {
			left, err = append(left, failed...), e
		}
	}
	who := x.m.committers() // before the look: what is taken from us after this cannot be committed under a later name
	late, e := x.commit(stillWanted(found), who)
	if len(late) > 0 {
		left, err = append(left, late...), e
	}
	return left, err
}

// first finds the first offsets at or after a time, or the ends where nothing is as late as that. These are asked for before:
// what is written between the two questions may be as late, and an end that is told later is behind it.
func (x *starter) first(leader int32, bs []*start, at int64) (found, left []*start, err error) {
	var ends map[partitionID]bound
	if at >= 0 {
		if ends, err = x.c.listOffsets(x.life.Context(), leader, partitionsOf(bs), timeEnd, x.cfg.isolation()); err != nil {
			return nil, bs, err
		}
	}
	bounds, err := x.c.listOffsets(x.life.Context(), leader, partitionsOf(bs), at, x.cfg.isolation())
	if err != nil {
		return nil, bs, err
	}
	for _, b := range bs {
		bound, e := offsetOf(bounds, b.partitionID)
		if e == nil && bound < 0 {
			bound, e = offsetOf(ends, b.partitionID)
		}
		if e != nil {
			left, err = append(left, b), e
			continue
		}
		b.progress = progress{base: bound, log: b.id.log(), first: b.first}
		found = append(found, b)
	}
	return found, left, err
}

// commit commits where partitions begin.
func (x *starter) commit(bs []*start, who func(partitionID) (memberID, bool)) (left []*start, err error) {
	cs := make(map[memberID][]*commitment)
	of := make(map[*commitment]*start, len(bs))
	for _, b := range bs {
		b.gap = b.reset
		me, ours := who(b.partitionID)
		if !ours {
			left, err = append(left, b), kafka.RebalanceInProgress
			continue
		}
		c := &commitment{partitionID: b.partitionID, offset: b.progress.base, metadata: b.metadata()}
		cs[me], of[c] = append(cs[me], c), b
	}
	var known []*start
	for me, cs := range cs {
		sent := x.k.commit(x.life.Context(), me, cs)
		for _, c := range cs {
			b := of[c]
			b.at = c.position()
			if codeOf(c.err) == kafka.OffsetMetadataTooLarge {
				b.shorten()
			}
			if e := errors.Join(sent, c.err); e != nil {
				left, err = append(left, b), ofTopic(b.partitionID, e)
			} else {
				known = append(known, b)
			}
		}
	}
	x.h.lookedUp(known...)
	return left, err
}
