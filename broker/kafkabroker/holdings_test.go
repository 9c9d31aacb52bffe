package kafkabroker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A holder drives holdings as a Source does, one step of anybody at a time, in any order, against a log and a group in memory. It
// is inside the package: only there the core can be had without brokers.
type holder struct {
	t      *testing.T
	r      *rand.Rand
	now    time.Time
	cfg    Config
	h      *holdings
	events *kit.EventQueue
	known  *books
	logs   map[partitionID]*simLog
	ids    int // topic ids that were used up

	told    map[partitionID]changeKind // what the group last said
	lookUps []*start
	flights []*flight
	timer   time.Time // when the loop looks again by itself; zero: never
	plans   bool      // somebody plans a fetch next
	asleep  bool      // Receive waits to be woken
	outs    []simOut
	commits []simCommit
	claims  map[*part]*simClaim
	acked   int
	deaths  int
	alone   int // messages that ran alone
}

// A simLog is a partition as its broker has it.
type simLog struct {
	id        topicID
	end       int64
	committed progress
	metadata  string
	acked     map[int64]bool
	out       map[int64]int
}

// A simOut is a message in a handler.
type simOut struct {
	p   *part
	log *simLog
	tok uint64
	o   int64
}

// A simCommit is a commit under way, with how many acks its claim had when it was put together.
type simCommit struct {
	due
	acks int64
}

// A simClaim is what was said of a claim.
type simClaim struct {
	acked       map[int64]bool
	acks        int64 // that said nil
	confirmed   int64 // of those: that a commit has which was answered
	unconfirmed int64 // that were told as Unconfirmed
	ended       int
	logGone     bool
}

func newHolder(t *testing.T, seed uint64) *holder {
	x := &holder{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0), logs: make(map[partitionID]*simLog),
		cfg: Config{Window: 64, RevokeWait: 100 * time.Millisecond, CommitMessages: 20}.withDefaults(),
	}
	if seed%3 == 0 {
		x.cfg.CrashLimit = 1
	}
	x.makeTopic()
	x.begin(seed%2 == 0)
	return x
}

// makeTopic makes the topic, or makes it anew.
func (x *holder) makeTopic() topic {
	x.ids++
	t := topic{name: "t", id: topicID{byte(x.ids >> 8), byte(x.ids)}, leaders: []int32{1, 1, 1}}
	for i := range t.leaders {
		x.logs[partitionID{"t", int32(i)}] = newSimLog(t.id)
	}
	for _, c := range x.claims {
		c.logGone = true
	}
	return t
}

func newSimLog(id topicID) *simLog {
	return &simLog{id: id, end: 200, acked: make(map[int64]bool), out: make(map[int64]int)}
}

// begin begins a process.
func (x *holder) begin(ordered bool) {
	x.events, x.known = kit.NewEventQueue(), &books{}
	x.events.Observe(x.observe)
	x.h = newHoldings(&x.cfg, newBells(), x.events, x.known)
	x.h.solo.me = x.r.Uint64()
	x.h.open(broker.Options{Budget: broker.Budget{Messages: 40, Bytes: 4000}, Ordered: ordered})
	x.told, x.claims = make(map[partitionID]changeKind), make(map[*part]*simClaim)
	x.lookUps, x.flights, x.outs, x.commits = nil, nil, nil, nil
	x.timer, x.plans, x.asleep = time.Time{}, false, false
	for _, l := range x.logs {
		clear(l.out)
	}
}

func (x *holder) observe(e broker.Event) {
	if e.Claim == nil {
		return
	}
	c := x.claims[e.Claim.State.(*part)]
	switch e.Kind {
	case broker.Unconfirmed:
		if left := c.acks - c.confirmed - c.unconfirmed; e.N != left && !c.logGone {
			x.t.Fatalf("%d acks are told as unconfirmed, %d are", e.N, left)
		}
		c.unconfirmed += e.N
	case broker.Ended:
		c.ended++
	}
}

func (x *holder) some() partitionID { return partitionID{"t", int32(x.r.IntN(len(x.logs)))} }

// one says yes once in n times.
func (x *holder) one(n int) bool { return x.r.IntN(n) == 0 }

func takeOne[T any](r *rand.Rand, from *[]T) (v T, ok bool) {
	if len(*from) == 0 {
		return v, false
	}
	i := r.IntN(len(*from))
	v = (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	return v, true
}

// step does one thing.
func (x *holder) step() {
	x.now = x.now.Add(time.Duration(x.r.IntN(50)) * time.Millisecond)
	switch n := x.r.IntN(23); {
	case n < 4:
		x.tell(n, x.some())
	case n < 7:
		x.follow()
	case n < 8:
		x.lookUp()
	case n < 10:
		x.look()
	case n < 12:
		x.land()
	case n < 14:
		x.receive()
	case n < 17:
		x.settle()
	case n < 18:
		x.collect()
	case n < 20:
		x.answer()
	default:
		x.disturb(n)
	}
	x.events.Tell()
	x.check()
}

// look is the loop's: it hears what was rung, plans and goes to sleep again.
func (x *holder) look() {
	heard(x.h.bells.kick)
	x.plans = false
	x.flights = append(x.flights, x.h.plan(x.now)...)
	x.timer = x.h.next(x.now)
}

// tell is the group's word.
func (x *holder) tell(n int, id partitionID) {
	switch {
	case n < 2 && x.told[id] == 0:
		x.told[id] = assigned
		x.h.changed(change{kind: assigned, parts: []partitionID{id}})
	case n == 2 && x.told[id] == assigned && x.one(3):
		x.told[id] = revoking
		x.h.changed(change{kind: revoking, parts: []partitionID{id}})
	case n == 3 && x.told[id] != 0 && x.one(8):
		x.lose(id)
	}
}

func (x *holder) lose(id partitionID) {
	delete(x.told, id)
	x.h.changed(change{kind: lost, parts: []partitionID{id}, err: broker.ErrLost})
}

func (x *holder) disturb(n int) {
	switch {
	case n == 20:
		x.h.pause(x.one(2), nil)
		x.h.pause(false, nil)
		x.h.next(x.now)
	case n == 21:
		if ps := x.h.roster.turns; len(ps) > 0 {
			x.h.hold(ps[x.r.IntN(len(ps))], x.now.Add(20*time.Millisecond))
		}
	case x.one(60): // made anew
		x.h.surveyed(map[string]topic{"t": x.makeTopic()}, func(partitionID, topicID) bool { return false })
	case x.one(60): // the process dies
		x.deaths++
		x.begin(x.h.ordered)
	}
}

// endClaims ends the claims that are to be ended.
func (x *holder) endClaims() {
	for _, e := range x.h.over(x.now) {
		switch x.r.IntN(8) { // beside it
		case 0, 1:
			x.lose(e.p.partitionID)
		case 2:
			x.collect()
		}
		e.p.keeper.End(e.err)
		x.h.ended(e)
		x.events.Tell()
	}
}

func (x *holder) follow() {
	x.endClaims()
	t := x.h.follow(x.now)
	for _, p := range t.revoke {
		p.keeper.Revoke(p.by)
		signal(x.h.bells.wake) // as the loop does
	}
	for _, id := range t.release {
		delete(x.told, id)
	}
	x.lookUps = append(x.lookUps, t.lookUp...)
	for _, b := range t.open {
		x.admit(b)
	}
	x.plans = true // the same step of the loop
	x.endClaims()
	for id := range x.logs {
		if r := &x.h.roster; x.told[id] == 0 && (r.parts[id] != nil || r.beginning[id] != nil) {
			x.t.Fatalf("%v is not ours, and is here", id)
		}
	}
}

func (x *holder) admit(b *start) {
	p := x.h.introduce(b, 1)
	if p == nil {
		return
	}
	x.claims[p] = &simClaim{acked: make(map[int64]bool), logGone: x.logs[p.partitionID].id != p.id}
	x.events.Tell()
	if x.told[b.partitionID] != 0 && x.one(5) { // beside it
		x.lose(b.partitionID)
	}
	x.h.admit(opening{b, p})
}

// lookUp does what a starter does.
func (x *holder) lookUp() {
	b, ok := takeOne(x.r, &x.lookUps)
	if !ok || b.unwanted.Load() {
		return
	}
	l := x.logs[b.partitionID]
	b.id, b.progress = l.id, progress{log: l.id.log()}
	b.at = position{offset: l.committed.base, metadata: l.metadata}
	if was := l.committed.log; was == l.id.log() && b.reset == nil {
		b.progress = l.committed
		if k := x.known.of(b, b.at); k != nil {
			b.progress, b.book = k.progress, k
		}
	}
	x.h.lookedUp(b)
}

// land lets a fetch come back.
func (x *holder) land() {
	f, ok := takeOne(x.r, &x.flights)
	if !ok {
		return
	}
	var got []fetched
	for _, w := range f.req.wishes {
		l := x.logs[w.partitionID]
		a := fetched{partitionID: w.partitionID, high: l.end, stable: -1, preferred: -1}
		switch {
		case x.one(10):
			a.err = kafka.LeaderNotAvailable
		case x.one(100):
			a.err = kafka.OffsetOutOfRange
		case w.id == l.id && w.offset < l.end:
			b := testBatch{base: w.offset}
			for o := w.offset; o < min(l.end, w.offset+int64(1+x.r.IntN(30))); o++ {
				b.offsets = append(b.offsets, o)
			}
			a.records = b.bytes()
		}
		if !x.one(20) {
			got = append(got, a)
		}
	}
	for _, o := range x.h.arrived(f, got, nil, x.now) {
		x.h.found(o, 0, x.logs[o.p.partitionID].end)
	}
}

func (x *holder) receive() {
	dst := make([]broker.Message, 1+x.r.IntN(20))
	heard(x.h.bells.wake)
	lapsed := x.one(20)
	l, err := x.h.lend(len(dst), x.now, lapsed)
	if err != nil {
		x.t.Fatal(err)
	}
	if x.asleep = l.p == nil && !lapsed; l.p == nil { // who lapsed is woken by the group's answer
		return
	}
	l.decode(dst)
	switch x.r.IntN(8) { // beside it
	case 0:
		x.follow()
	case 1:
		x.settle()
		x.look()
	case 2:
		x.h.pause(true, nil)
		x.h.pause(false, nil)
		x.look()
	}
	n, hungry := x.h.take(&l, dst, x.now)
	x.plans = x.plans || hungry
	for _, m := range dst[:n] {
		x.handedOut(l.p, m)
	}
}

func (x *holder) settle() {
	m, ok := takeOne(x.r, &x.outs)
	if !ok {
		return
	}
	m.log.out[m.o]--
	if x.one(4) {
		err := x.h.nack(m.p, []broker.Back{{Token: m.tok, Runs: int32(x.r.IntN(3))}})
		if err != nil && !errors.Is(err, broker.ErrLost) {
			x.t.Fatalf("nack: %v", err)
		}
		return
	}
	switch err := x.h.ack(m.p, []uint64{m.tok}); {
	case err == nil:
		c := x.claims[m.p]
		m.log.acked[m.o], c.acked[m.o] = true, true
		c.acks++
		x.acked++
	case !errors.Is(err, broker.ErrLost):
		x.t.Fatalf("ack: %v", err)
	}
}

func (x *holder) collect() {
	for _, d := range x.h.collect(x.one(10), nil) {
		if d.last && x.claims[d.p].ended == 0 {
			x.t.Fatalf("%v: the last commit is put together, and its claim has not ended", d.p.partitionID)
		}
		x.commits = append(x.commits, simCommit{d, x.claims[d.p].acks})
	}
}

// answer is the group's to commits: one by one, in their order.
func (x *holder) answer() {
	if len(x.commits) == 0 {
		return
	}
	n := 1 + x.r.IntN(len(x.commits))
	var ds []due
	for _, d := range x.commits[:n] {
		d.c.err = x.commit(d.due)
		if c := x.claims[d.p]; d.c.err == nil {
			c.confirmed = max(c.confirmed, d.acks)
		}
		ds = append(ds, d.due)
	}
	x.commits = x.commits[n:]
	for _, id := range x.h.answered(ds, func(partitionID, topicID) bool { return true }).released {
		if x.h.roster.parts[id] != nil || x.h.roster.beginning[id] != nil {
			x.t.Fatalf("%v is released, and is here", id)
		}
		delete(x.told, id)
	}
}

// commit is what the coordinator does with one.
func (x *holder) commit(d due) error {
	l := x.logs[d.p.partitionID]
	switch {
	case x.told[d.p.partitionID] == 0:
		return kafka.UnknownMemberId
	case x.one(10):
		return kafka.RequestTimedOut
	case d.p.id != l.id:
		return kafka.UnknownTopicOrPartition
	case d.s.base < l.committed.base:
		return nil
	}
	l.committed, l.metadata = d.s.progress, d.c.metadata
	for o := range d.s.base {
		x.finished(l, o)
	}
	for _, s := range d.s.done {
		for o := s.from; o < s.to; o++ {
			x.finished(l, o)
		}
	}
	return nil
}

// close ends it as Close does, with last commits that are answered or not.
func (x *holder) close() {
	x.h.stop()
	x.h.leave(broker.ErrClosed)
	x.endClaims()
	for !x.h.due().over && !x.one(20) {
		x.collect()
		x.answer()
	}
	x.h.giveUp(broker.ErrClosed)
	x.endClaims()
	x.events.Tell()
	for len(x.outs) > 0 {
		x.settle()
	}
	x.flights = nil
	x.places()
	if r := &x.h.roster; len(r.parts)+len(r.beginning)+len(r.ending)+len(r.toEnd) > 0 || x.h.gate.Out() != 0 {
		x.t.Fatalf("something is left after Close: %+v, %d messages out", r, x.h.gate.Out())
	}
}

// TestHoldings: whatever happens in whatever order, nothing is out twice, nothing is committed that was not acked, each ack is
// committed or told as Unconfirmed, the budget is what is there, what runs alone is alone, and a partition is in one place.
func TestHoldings(t *testing.T) {
	const seeds = 300
	ran, acked, deaths, alone := 0, 0, 0, 0
	for seed := range uint64(seeds) {
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			x := newHolder(t, seed)
			for range 4000 {
				x.step()
			}
			x.close()
			ran++
			acked, deaths, alone = acked+x.acked, deaths+x.deaths, alone+x.alone
		})
		if !ok {
			return
		}
	}
	t.Logf("%d messages were acked, %d processes died, %d messages ran alone", acked, deaths, alone)
	if ran == seeds && (acked < 5000 || deaths < 100 || alone < 100) { // not where one seed is asked for
		t.Error("too little happened: nothing was proved")
	}
}

// A budget that is changed is looked at by Receive, which may wait for room, and by the loop, which plans fetches: at once, and
// not when something else happens.
func TestBudgetIsLookedAt(t *testing.T) {
	cfg := Config{}.withDefaults()
	b := newBells()
	h := newHoldings(&cfg, b, kit.NewEventQueue(), &books{})
	h.setBudget(broker.Budget{Messages: 7, Bytes: 1 << 10})
	if n, bytes, _ := h.gate.Room(); n != 7 || bytes != 1<<10 {
		t.Errorf("there is room for %d messages, %d bytes", n, bytes)
	}
	if len(b.wake) != 1 || len(b.kick) != 1 {
		t.Errorf("rung: Receive %d, the loop %d", len(b.wake), len(b.kick))
	}
}
