package kafkabroker

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

const (
	// flightsPerBroker is how many fetches may be under way to one broker: one that waits for partitions without messages, and one
	// more, so that a partition which was read to its end need not wait for the first.
	flightsPerBroker = 2
	// partWait is how long a fetch waits that does not have all of its broker's partitions, so that they come together again soon.
	partWait = 50 * time.Millisecond
	// restLimit is how many times Config.MaxWait a fetch waits at most while nothing comes: a broker answers at once when something
	// does.
	restLimit = 10
	// restBytes is what a fetch has to be allowed to bring that waits so long: it has its bytes all that time.
	restBytes = 64 << 10
)

// A flight is a fetch under way, with the version that each partition had.
type flight struct {
	req      fetchRequest
	sent     time.Time
	parts    []*part
	versions []int
	most     int64 // bytes; zero: no bound of its own, and it waits for no longer than Config.MaxWait
}

// rests says whether it waits for longer.
func (f *flight) rests() bool { return f.most > 0 }

// Flights decide what is fetched, and take what comes.
type flights struct {
	*shared
	r     *roster
	to    map[int32][]*flight // under way by broker
	sent  int                 // how many were
	asked map[int32]int       // of each broker, the number of the last one
	quiet map[int32]int       // of each broker, how many fetches in a row waited for all its partitions in vain
	lagAt time.Time           // when a broker last told of ends
}

// A want says what a fetch would be to a partition now.
type want int

const (
	notNow want = iota // nothing is to be fetched of it
	later              // something is, but not by this fetch
	atOnce
)

// wants decides that; it changes nothing.
func (p *part) wants(now time.Time, barred bool) want {
	switch {
	case p.node() < 0, p.stage != open, barred, p.sought, now.Before(p.heldUntil), now.Before(p.retryAt):
		return notNow
	case p.flying, p.cur != nil, p.busy, p.full():
		return later
	}
	return atOnce
}

// plan puts fetches together, one for each broker, and reserves budget for them.
func (x *flights) plan(now time.Time) (fs []*flight) {
	if x.stopped || x.fatal != nil {
		return nil
	}
	var only *part
	if p := x.suspected(now); p != nil && x.spent() {
		only = p
		x.makeRoom(p)
	}
	if x.gate.Starved() && x.spent() {
		return nil
	}
	most := x.most(only)
	for _, f := range x.group(now, only) {
		_, free, ok := x.gate.FetchRoom()
		if !ok {
			break
		}
		x.load(f, min(free, most))
		f.sent = now
		fs = append(fs, f)
	}
	if only != nil && len(fs) > 0 {
		signal(x.bells.kick) // now for the others
	}
	return fs
}

// suspected is the partition whose suspect is to be fetched, if there is one.
func (x *flights) suspected(now time.Time) *part {
	p := x.solo.marked
	if p == nil || p.mark != setting && p.mark != set || p.wants(now, x.bars(p)) != atOnce {
		return nil
	}
	return p
}

// makeRoom lets go of what is prefetched of all others. They hand nothing out before this one does, so none of it would ever
// become free.
func (x *flights) makeRoom(forIt *part) {
	for _, p := range x.r.turns {
		if p != forIt && p.cur != nil {
			p.drop()
		}
	}
}

// spent says whether there is no budget for a fetch.
func (x *flights) spent() bool {
	budget := x.gate.Budget()
	n, bytes := x.gate.Held()
	return budget.Messages-x.gate.Out()-n <= 0 || budget.Bytes-x.gate.OutBytes()-bytes <= 0
}

// most is how many bytes one fetch may reserve. A broker that hangs keeps them for as long as a request may take, and the fetches
// of the others are to have room meanwhile. A suspect's alone may have all.
func (x *flights) most(only *part) int64 {
	nodes := len(x.asked)
	for node := range x.r.idle {
		if node >= 0 && x.asked[node] == 0 {
			nodes++
		}
	}
	if len(x.r.beginning) > 0 { // and may be another's: the leader that tells first where its logs begin may hang from then on
		nodes = max(nodes, 2)
	}
	fetch := int64(x.cfg.FetchBytes)
	if only != nil || nodes < 2 {
		return fetch
	}
	return min(fetch, max(1, x.gate.Budget().Bytes/int64(flightsPerBroker*nodes)))
}

// group is what may be fetched now, by broker; of one partition only, where that may need all the room that there is.
func (x *flights) group(now time.Time, only *part) (fs []*flight) {
	for node, idle := range x.r.idle {
		if node >= 0 && len(x.to[node]) < flightsPerBroker {
			if f := x.gather(node, idle, now, only); f != nil {
				fs = append(fs, f)
			}
		}
	}
	// One fetch may reserve all of a small budget. Who waited longest comes first: a broker that has nothing would else keep it,
	// with one fetch behind the other.
	slices.SortFunc(fs, func(a, b *flight) int {
		return cmp.Or(cmp.Compare(x.asked[a.req.node], x.asked[b.req.node]), cmp.Compare(a.req.node, b.req.node))
	})
	return fs
}

// gather is what may be fetched of a broker now, of those of its partitions that are idle; nil: nothing.
func (x *flights) gather(node int32, idle []*part, now time.Time, only *part) *flight {
	var parts []*part
	all, calm := true, true
	for _, p := range idle {
		if only != nil && p != only {
			all = false
			continue
		}
		switch p.wants(now, x.bars(p)) {
		case atOnce:
			parts, calm = append(parts, p), calm && p.calm
		case later:
			x.ready(p, now) // tells where its window has become full
			all = false
		}
	}
	if len(parts) == 0 || calm && x.joins(node) {
		return nil
	}
	f := &flight{parts: parts, req: fetchRequest{
		node: node, maxWait: x.cfg.MaxWait, committed: !x.cfg.Uncommitted, rack: x.cfg.Rack,
	}}
	if slices.ContainsFunc(parts, func(p *part) bool { return now.Before(p.shuns) }) {
		f.req.rack = "" // for whom no replica is named
	}
	if !all || len(x.to[node]) > 0 || x.stocked(node, now) {
		f.req.maxWait = min(partWait, x.cfg.MaxWait)
	} else if n := x.quiet[node]; n > 0 {
		x.rest(f, n)
	}
	return f
}

// rest has a fetch wait longer than others, where it has all that may come to be fetched of its broker before it is back: beside
// it others would be short ones, and what is given back would wait for it. Its bytes leave room for fetches of the other brokers.
func (x *flights) rest(f *flight, quiet int) {
	if x.gate.Out() > 0 || len(x.r.beginning) > 0 {
		return
	}
	n, nodes := 0, make(map[int32]bool)
	for _, p := range x.r.turns {
		nodes[p.node()] = true
		if p.node() == f.req.node {
			n++
		}
	}
	share := x.gate.Budget().Bytes / int64(len(nodes)+1)
	if n == len(f.parts) && share >= restBytes {
		f.req.maxWait, f.most = x.cfg.MaxWait*time.Duration(min(1<<quiet, restLimit)), share
	}
}

// resting says whether of each partition a fetch is under way that rests: no end changes then without an answer.
func (x *flights) resting() bool {
	n := 0
	for _, fs := range x.to {
		for _, f := range fs {
			if !f.rests() {
				return false
			}
			n += len(f.parts)
		}
	}
	return n == len(x.r.turns) && len(x.r.beginning) == 0
}

// joins says whether a fetch of what had nothing lately waits for the one that is under way, since that is back soon: two that
// follow each other would never come together, and each would be a short one.
func (x *flights) joins(node int32) bool {
	return len(x.to[node]) > 0 && x.to[node][0].req.maxWait <= partWait
}

// stocked says whether some of a broker's partitions will have to be fetched when what is here of them is handed out.
func (x *flights) stocked(node int32, now time.Time) bool {
	return slices.ContainsFunc(x.r.stock, func(p *part) bool {
		return p.node() == node && p.wants(now, x.bars(p)) == later
	})
}

// load says what a fetch is to bring.
func (x *flights) load(f *flight, free int64) {
	f.req.bytes = int32(min(int64(x.cfg.FetchBytes), free, cmp.Or(f.most, free)))
	inPieces(f.parts)
	f.versions, f.req.wishes = make([]int, 0, len(f.parts)), make([]wish, 0, len(f.parts))
	for _, p := range f.parts {
		p.flying = true
		f.versions = append(f.versions, p.version)
		f.req.wishes = append(f.req.wishes,
			wish{partitionID: p.partitionID, id: p.id, offset: p.pos, epoch: p.epoch, bytes: x.share(f)})
	}
	x.gate.Hold(0, int64(f.req.bytes))
	x.r.takes(f.req.node, f.parts)
	x.to[f.req.node] = append(x.to[f.req.node], f)
	x.sent++
	x.asked[f.req.node] = x.sent
}

// share is what a fetch may bring of each of its partitions. Few of them share what more would bring: it is reserved for them
// anyway, and one long answer costs client and broker less than several short ones.
func (x *flights) share(f *flight) int32 {
	return min(max(int32(x.cfg.PartitionBytes), f.req.bytes/int32(len(f.parts))), f.req.bytes)
}

// inPieces has the partitions of each topic follow each other, and of each id that it has. Topics come as their first partitions
// do: who waited longest is answered first, where the bytes are not enough for all.
func inPieces(ps []*part) {
	turns, mixed := make(map[string]int), false
	for i, p := range ps {
		if i == 0 || p.topic != ps[i-1].topic || p.id != ps[i-1].id {
			if _, known := turns[p.topic]; !known {
				turns[p.topic] = len(turns)
			}
			mixed = i > 0
		}
	}
	if mixed {
		slices.SortStableFunc(ps, func(a, b *part) int {
			return cmp.Or(turns[a.topic]-turns[b.topic], bytes.Compare(a.id[:], b.id[:]))
		})
	}
}

// An outOfRange is a partition whose position its log does not have.
type outOfRange struct {
	p      *part
	pos    int64
	leader int32
	epoch  int32     // of the last batch that was looked at; -1: not known
	ends   *epochEnd // of that epoch's log, as the leader says; nil: it was not asked, or does not tell
}

// cut says whether the log was cut off below what was looked through. A leader may have no batch of the epoch any more where
// compaction removed all of them, and then the end that it tells is not below that.
func (o *outOfRange) cut() bool {
	return o.ends != nil && o.ends.offset >= 0 && o.ends.offset < o.p.top
}

// arrived takes what a fetch brought, where it is still wanted. Of what is out of range somebody has to find the range.
func (x *flights) arrived(f *flight, got []fetched, err error, now time.Time) (outside []outOfRange) {
	answers := make([]*fetched, len(f.parts))
	asked := finder{n: len(f.parts), of: func(i int) partitionID { return f.parts[i].partitionID }}
	for i := range got {
		if to := asked.find(got[i].partitionID); to >= 0 {
			answers[to] = &got[i]
		}
	}
	hasty := now.Sub(f.sent) < f.req.maxWait/2 && !slices.ContainsFunc(got, func(a fetched) bool { return len(a.records) > 0 })
	x.gate.Hold(0, -int64(f.req.bytes))
	x.to[f.req.node] = slices.DeleteFunc(x.to[f.req.node], func(other *flight) bool { return other == f })
	for i, p := range f.parts {
		p.flying = false
		a := answers[i]
		switch {
		case a == nil && err != nil:
			p.putOff(now.Add(retryWait))
			signal(x.bells.find)
		case a == nil: // it may be so again and again
			x.nowhere(p, errLeftOut, now)
		case p.stage >= fenced || p.version != f.versions[i]:
		default:
			if a.diverges = a.diverges || p.rewritten(a.records); a.outside() {
				outside = append(outside, outOfRange{p: p, pos: p.pos, leader: p.leader, epoch: p.epoch})
				p.sought = true // were it fetched meanwhile, each answer would have the leader asked once more
			}
			x.accept(p, a, now)
			p.calm = p.cur == nil && a.err == nil
			if hasty {
				p.fruitless(now)
			}
		}
		x.r.rests(p)
	}
	if err == nil {
		x.lagAt = now
	}
	x.rested(f, answers, now)
	if x.left = x.waits && err == nil && x.isFed(f, now); x.left {
		signal(x.bells.wake)
	} else {
		x.bells.look()
	}
	return outside
}

// surveyed forgets the brokers that nothing is to be fetched of any more: others leave them no room, and brokers may come and go
// for ever.
func (x *flights) surveyed() {
	of := make(map[int32]bool)
	for _, p := range x.r.turns {
		of[p.node()] = true
	}
	maps.DeleteFunc(x.to, func(node int32, fs []*flight) bool { return !of[node] && len(fs) == 0 })
	isGone := func(node int32, _ int) bool { return !of[node] && len(x.to[node]) == 0 }
	maps.DeleteFunc(x.asked, isGone)
	maps.DeleteFunc(x.quiet, isGone)
}

// isFed says that Receive, which waits, has something to hand out now, and that there is nothing else to do about a fetch. Then
// Receive, which fetches what it has used up, does so for all of the fetch's partitions together. Did the loop look first, it
// would fetch those that got nothing, and Receive the others: two short fetches, and one more to be woken, where few come.
func (x *flights) isFed(f *flight, now time.Time) (fed bool) {
	for _, p := range f.parts {
		if p.retryAt.After(now) {
			return false
		}
		fed = fed || p.cur != nil && x.ready(p, now) && !x.behindStale(p)
	}
	return fed
}

// rested takes note of whether a broker has had nothing for as long as it was given.
func (x *flights) rested(f *flight, answers []*fetched, now time.Time) {
	waited := f.req.maxWait >= x.cfg.MaxWait && now.Sub(f.sent) >= f.req.maxWait*3/4
	told := func(a *fetched) bool { return a == nil || a.err != nil || len(a.records) > 0 || a.preferred >= 0 }
	if waited && !slices.ContainsFunc(answers, told) {
		x.quiet[f.req.node] = min(x.quiet[f.req.node]+1, restLimit)
		return
	}
	delete(x.quiet, f.req.node)
	if f.rests() {
		signal(x.bells.stir)
	}
}

// accept takes one partition's part of an answer.
func (x *flights) accept(p *part, a *fetched, now time.Time) {
	switch {
	case a.outside():
		p.putOff(now.Add(retryWait))
		return
	case moved(a.err):
		x.nowhere(p, a.err, now)
		return
	case a.err != nil:
		p.putOff(now.Add(20 * retryWait))
		return
	}
	p.end, p.endAt, p.away = a.end(!x.cfg.Uncommitted), now, absence{}
	x.behind(p, a, now)
	p.askAgain(now)
	if a.preferred >= 0 && len(a.records) == 0 {
		p.follow(a.preferred, now)
		return
	}
	if len(a.records) == 0 {
		return
	}
	d := newDecoder(a.records, p.pos, max(a.high, p.end), !x.cfg.Uncommitted, a.aborted, x.cfg.MaxBatchBytes)
	p.put(d, int64(len(a.records)))
}

// nowhere takes note that a broker which was asked for a partition does not serve it.
func (x *flights) nowhere(p *part, why error, now time.Time) {
	x.unserved(p, why)
	p.putOff(now.Add(p.away.pause(now)))
	signal(x.bells.find)
}

// behind tells where a transaction hides for too long what was written behind it.
func (x *flights) behind(p *part, a *fetched, now time.Time) {
	if p.pos < p.end || p.end == a.high {
		p.behind = hiding{}
		return
	}
	if took, long := p.behind.stands(p.end, now); long {
		err := fmt.Errorf("%w: %s/%d stands at offset %d for %v, and ends at %d", errHidden, p.topic, p.no, p.end, took, a.high)
		x.events.Say(broker.Event{Kind: broker.Warning, Claim: p.claim, Err: err})
	}
}

var (
	errTrimmed = errors.New("the log begins above the position: messages are gone that nobody handled")
	errBeyond  = errors.New("the position is beyond the log's end: the log was cut off or made again")
	errCutOff  = errors.New("the log was cut off below the position, and messages that were handled are gone")
)

// A cutOff is an errCutOff, and has what is finished below where the log was cut off, and of which leader the log is up to there:
// it may be cut off again before anything of it is looked at.
type cutOff struct {
	error
	progress
	epoch int32
	at    int64 // where it was cut off
}

func (c *cutOff) Unwrap() error { return c.error }

// with is its progress, and what else is committed as finished below the cut: a transaction that was under way may have come to
// its end since.
func (c *cutOff) with(committed progress) progress {
	p := c.progress
	if committed.log != p.log || p.log == 0 {
		return p
	}
	p.base = max(p.base, min(committed.base, c.at))
	spans := slices.Concat(p.done, committed.done)
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	p.done = nil
	for _, s := range spans {
		s.to = min(s.to, c.at)
		last := len(p.done) - 1
		switch {
		case s.to <= s.from:
		case s.from <= p.base:
			p.base = max(p.base, s.to)
		case last >= 0 && s.from <= p.done[last].to:
			p.done[last].to = max(p.done[last].to, s.to)
		default:
			p.done = append(p.done, s)
		}
	}
	p.runs = slices.DeleteFunc(slices.Clone(p.runs), func(r failedRuns) bool { return r.offset < p.base })
	return p
}

// unfound says that a leader did not tell where the log begins and ends: it is asked again when the next fetch calls for that.
func (x *flights) unfound(o outOfRange) {
	if o.p.leader == o.leader {
		o.p.sought = false
	}
}

// found takes where the log begins and ends whose position is out of range, and does what the policy says. restart is why the
// partition has to begin anew.
func (x *flights) found(o outOfRange, first, end int64) (restart error) {
	p := o.p
	x.unfound(o)
	if p.stage != open || p.pos != o.pos {
		return nil
	}
	why := fmt.Errorf("%s/%d: %w: position %d, end %d", p.topic, p.no, errBeyond, p.pos, end)
	switch {
	case p.pos >= first && o.cut():
		left, gone := p.tr.cut(o.ends.offset)
		why = &cutOff{fmt.Errorf("%s/%d: %w: cut off at offset %d, position %d, %d handled", p.topic, p.no, errCutOff, o.ends.offset,
			p.pos, gone), left, o.ends.epoch, o.ends.offset}
	case p.pos >= first && p.pos <= end: // a replica, or a leader that was new, did not have it yet
		p.forgetEpoch() // of which a leader may have nothing any more, and then would give nothing
		return nil
	case p.pos < first:
		why = fmt.Errorf("%s/%d: %w: from %d to %d", p.topic, p.no, errTrimmed, p.scan, first)
	}
	switch {
	case x.cfg.OutOfRange == "stop":
		x.fail(fmt.Errorf("ended by the policy stop: %w", why))
	case p.pos < first:
		from := p.scan
		if gone := p.jump(0, first); gone > 0 {
			x.events.Say(broker.Event{Kind: broker.Gap, Claim: p.claim, From: from, N: gone, Err: why})
		}
	default:
		return why
	}
	return nil
}

// An unknownEnd is a partition of whose end no broker has told lately.
type unknownEnd struct {
	p      *part
	leader int32
}

// oldEnd is the age from which a partition's end is asked for: nothing is fetched of it, because the budget is used up, or it is
// paused.
const oldEnd = 2 * time.Second

func (x *flights) unmeasured(now time.Time) (es []unknownEnd) {
	if x.resting() {
		return nil
	}
	for _, p := range x.r.turns {
		if now.Sub(p.endAt) > oldEnd && p.leader >= 0 {
			es = append(es, unknownEnd{p, p.leader})
		}
	}
	return es
}

func (x *flights) measured(p *part, end int64, now time.Time) {
	p.end, p.endAt, x.lagAt = end, now, now
}

// lags are that of all partitions, by the last answers of their brokers, and of each. That of all is as old as the oldest of
// them.
func (x *flights) lags() (sum broker.Lag, each []broker.PartitionLag) {
	known := !x.lagAt.IsZero() && len(x.r.beginning) == 0
	sum.At, each = x.lagAt, make([]broker.PartitionLag, 0, len(x.r.turns))
	for _, p := range x.r.turns {
		of := p.lag()
		each = append(each, broker.PartitionLag{Topic: p.topic, Partition: p.no, Lag: of})
		known = known && of.Waiting >= 0
		if of.At.Before(sum.At) {
			sum.At = of.At
		}
		sum.Waiting += of.Waiting
		sum.Unsettled += of.Unsettled
	}
	if !known {
		sum = broker.UnknownLag()
	}
	return sum, each
}
