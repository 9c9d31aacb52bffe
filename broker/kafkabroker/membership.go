package kafkabroker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/chance"
)

// A change is what a membership tells of partitions. Each is assigned, then perhaps revoking, then released by the source; or
// lost, which needs no release.
type change struct {
	kind  changeKind
	parts []partitionID
	err   error // of lost
}

type changeKind int

const (
	assigned changeKind = iota + 1
	revoking
	lost
)

// A membership is our part in a group. Nothing of the protocol shows but partitions that come and go one by one, and who we are
// for a commit, so that KIP-848 fits behind it as well.
type membership interface {
	// run takes part until ctx ends, or returns what another try would not change. Changes are told by calls that must not block.
	// After ctx has ended it does not leave the group.
	run(ctx context.Context) error
	// release says that revoked partitions are drained and committed. It does not block.
	release(parts []partitionID)
	// look takes how topics are laid out now. It does not block.
	look(v survey)
	// self is who we are in the group.
	self() memberID
	// committers says who we are for commits of partitions; false: a partition is not ours. What was asked for stays as it was: with
	// what is lost meanwhile nothing can be committed under a later name.
	committers() func(p partitionID) (memberID, bool)
	// assigns says whether a partition of ours is of that topic. Where the group assigns by topic ids it may not have heard yet
	// that a topic was made anew: until then what we have is of the old one.
	assigns(p partitionID, id topicID) bool
	// lapsed says whether nobody has answered for so long that the group may have others in our place.
	lapsed(now time.Time) bool
	// leave tells the group that we are gone, after run has returned. While the coordinator is away it tries on until ctx ends:
	// otherwise the others would wait for a session timeout.
	leave(ctx context.Context) error
}

// classic is the membership by JoinGroup, SyncGroup and Heartbeat.
type classic struct {
	k      *coordinator
	cfg    *Config
	proto  scheme
	topics func() []string // to subscribe to, by what is known now
	tell   func(change)
	// trouble is told of exchanges, when they began and how they failed; nil: they worked.
	trouble func(began time.Time, err error)

	poke  chan struct{}
	quick int // rounds in a row that ended at once; run's alone

	mu       sync.Mutex
	me       memberID
	leads    bool
	rejoin   bool
	last     time.Time
	failed   error                // why what was asked last got no answer; nil: it got one
	owned    map[partitionID]bool // told as assigned and not released or lost
	draining map[partitionID]bool // of those: told as revoking
	gave     bool                 // something was given up since the last join
	asked    bool                 // something is to be given up, and we have not joined again since
	settled  bool                 // a static member has seen that the place it came back to leaves nothing to nobody
	target   map[partitionID]bool // what the group wants us to have
	shared   map[string]int32     // what the leader's plan was made of
	names    []string             // what we subscribed to
}

var _ membership = (*classic)(nil)

func newClassic(k *coordinator, cfg *Config, topics func() []string, tell func(change), trouble func(time.Time, error)) *classic {
	return &classic{
		k: k, cfg: cfg, proto: schemes[cfg.Balancer], topics: topics, tell: tell, trouble: trouble, poke: make(chan struct{}, 1),
		me:    memberID{instance: cfg.InstanceID, generation: -1},
		owned: make(map[partitionID]bool), draining: make(map[partitionID]bool),
	}
}

func (g *classic) self() memberID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.me
}

func (g *classic) committers() func(partitionID) (memberID, bool) {
	me := g.self()
	return func(partitionID) (memberID, bool) { return me, true }
}

// assigns: the group knows topics by their names, so that a partition stays ours when its topic is made anew.
func (g *classic) assigns(partitionID, topicID) bool { return true }

func (g *classic) lapsed(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return now.Sub(g.last) >= g.cfg.SessionTimeout
}

// owes says whether the group waits for us: it wants partitions for others, and only our next join would say that we have let
// them go.
func (g *classic) owes() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

func (g *classic) leave(ctx context.Context) error {
	me := g.self()
	if me.member == "" || me.instance != "" && !g.owes() { // a static member keeps its place for its next start
		return nil
	}
	return sayGoodbye(ctx, func() error { return g.k.leave(ctx, me) })
}

// goodbyes is how often a goodbye is said again after an answer that does not say that the coordinator is away.
const goodbyes = 5

// sayGoodbye tries on while the coordinator is away, until ctx ends. Other answers, which a heartbeat would be sent again after,
// may pass as well, and what is not said costs the others a session; but they may also stay, and Close is not to wait for that.
func sayGoodbye(ctx context.Context, leave func() error) error {
	for again := goodbyes; ; {
		err := leave()
		switch codeOf(err) {
		case kafka.UnknownMemberId, fencedMemberEpoch, kafka.GroupIdNotFound: // we are gone already
			return nil
		case 0, kafka.GroupLoadInProgress, kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup, kafka.RequestTimedOut:
		default:
			if again--; again < 0 || refusedForGood(err) {
				return err
			}
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, retryWait)
	}
}

// retryWait is the pause after a failed exchange, up to twice that.
const retryWait = 50 * time.Millisecond

func (g *classic) run(ctx context.Context) error {
	for {
		began := time.Now()
		err := g.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && refused(err) {
			g.lose(err)
			return err
		}
		if g.mend(began, err) {
			g.rest(ctx, err)
		}
	}
}

// rest waits before the next try. Where the session is over meanwhile, what we have ends then: others may have it from then on.
func (g *classic) rest(ctx context.Context, err error) {
	wait := retryWait + chance.Below(retryWait)
	if left := g.left(); 0 < left && left < wait {
		if pause(ctx, left); ctx.Err() == nil {
			g.silence(err)
		}
		wait -= left
	}
	pause(ctx, wait)
}

// left is how long the session goes on if nobody answers.
func (g *classic) left() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.last.Add(g.cfg.SessionTimeout))
}

// mend does what an error calls for. It says whether to wait before the next try.
func (g *classic) mend(began time.Time, err error) (wait bool) {
	switch codeOf(err) {
	case kafka.MemberIDRequired, kafka.RebalanceInProgress:
		g.answered(began)
		return g.hasty(began)
	case kafka.UnknownMemberId:
		g.lose(err)
		g.mu.Lock()
		g.me.member, g.me.generation = "", -1
		g.mu.Unlock()
		return true
	case kafka.IllegalGeneration:
		g.lose(err)
		return true
	}
	if err != nil {
		g.unanswered(err)
	}
	return err != nil
}

// unanswered takes note of an exchange that failed, which may be the last one of the session.
func (g *classic) unanswered(err error) {
	g.fails(err)
	g.trouble(time.Time{}, err)
	g.silence(err)
}

// fails and failure keep why what was asked last is no sign of life.
func (g *classic) fails(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = err
}

func (g *classic) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// over tells the end of the session where what was asked last got no answer; nil: that is to be asked first, for a process that
// stood still may have its place yet.
func (g *classic) over() <-chan time.Time {
	if left := g.left(); g.failure() != nil && left > 0 {
		return time.After(left)
	}
	return nil
}

// hastyAllowed is how many rounds in a row may end at once before the next one waits: the first join of a member does, and so may
// the sync after it.
const hastyAllowed = 3

// hasty says whether rounds end at once, again and again, and the group only says to join again.
func (g *classic) hasty(began time.Time) bool {
	g.quick++
	if time.Since(began) >= retryWait {
		g.quick = 0
	}
	return g.quick > hastyAllowed
}

// silence loses everything when nobody has answered for a session: the group has given it to others by now.
func (g *classic) silence(err error) {
	if g.silent() {
		g.lose(fmt.Errorf("no answer for %v: %w", g.cfg.SessionTimeout, err))
	}
}

// silent says whether nobody has answered for a session.
func (g *classic) silent() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.last.IsZero() && time.Since(g.last) >= g.cfg.SessionTimeout
}

// answered takes note of an answer to what was asked at a time. The coordinator counts the session from when it heard us, which
// was then at the earliest.
func (g *classic) answered(began time.Time) {
	g.mu.Lock()
	if began.After(g.last) {
		g.last = began
	}
	g.failed = nil
	g.mu.Unlock()
	g.trouble(began, nil)
}

func (g *classic) lose(err error) {
	g.mu.Lock()
	parts := sorted(g.owned)
	clear(g.owned)
	clear(g.draining)
	g.target = nil
	g.mu.Unlock()
	if len(parts) > 0 {
		g.tell(change{kind: lost, parts: parts, err: fmt.Errorf("%w: %w", broker.ErrLost, err)})
	}
}

func sorted(set map[partitionID]bool) []partitionID {
	return slices.SortedFunc(maps.Keys(set), comparePartitions)
}

// round is one generation: join, sync, take up what is assigned, and heartbeats until the group wants us to join again.
func (g *classic) round(ctx context.Context) error {
	if !g.proto.cooperative {
		if err := g.yield(ctx); err != nil {
			return err
		}
	}
	j, err := g.join(ctx)
	if err != nil {
		return err
	}
	var plan map[string][]partitionID
	if j.leads {
		err = g.await(ctx, j.memberID, func(ctx context.Context) (err error) {
			plan, err = g.plan(ctx, j.subs)
			return err
		})
		if err != nil {
			return err
		}
	}
	began := time.Now()
	var got []partitionID
	err = g.await(ctx, j.memberID, func(ctx context.Context) (err error) {
		got, err = g.k.sync(ctx, j.memberID, plan)
		return err
	})
	if err != nil {
		return err
	}
	g.answered(began)
	g.mu.Lock()
	g.asked = false // by the plan that we joined for
	g.mu.Unlock()
	g.apply(got)
	g.settle(ctx)
	return g.beat(ctx, nil)
}

// settle looks, where a static member came back, whether the group has its partitions all given to somebody, and lets it join
// again where not. The sequence: the member is to give some up, and ends before it has joined again without them; it comes back
// within its session; the group gives it its place without a new plan, and in the old one nobody has what it was to give up.
// Other members have nothing to tell, and would wait for ever.
func (g *classic) settle(ctx context.Context) {
	g.mu.Lock()
	look := g.me.instance != "" && g.proto.cooperative && !g.settled
	g.settled = true
	names := g.names
	g.mu.Unlock()
	if !look {
		return
	}
	var all bool
	err := g.await(ctx, g.self(), func(ctx context.Context) (err error) {
		all, err = g.allGiven(ctx, names)
		return err
	})
	g.mu.Lock()
	g.rejoin = g.rejoin || !all || err != nil // a join too many does no harm
	g.mu.Unlock()
}

// allGiven says whether each partition of topics is some member's.
func (g *classic) allGiven(ctx context.Context, names []string) (bool, error) {
	d, err := g.k.describe(ctx)
	if err != nil {
		return false, err
	}
	ts, err := g.k.c.topics(ctx, names)
	if err != nil {
		return false, err
	}
	for name, t := range ts {
		for no := range t.leaders {
			if !d.given[partitionID{name, int32(no)}] {
				return false, nil
			}
		}
	}
	return true, nil
}

// join sends JoinGroup, which the coordinator answers when all members have joined.
func (g *classic) join(ctx context.Context) (joined, error) {
	g.mu.Lock()
	g.rejoin, g.gave, g.names = false, false, g.topics()
	me := g.me
	body := subscription(g.names, sorted(g.owned), me.generation)
	g.mu.Unlock()
	var j joined
	began := time.Now()
	err := g.await(ctx, me, func(ctx context.Context) (err error) {
		j, err = g.k.join(ctx, me, g.cfg, g.proto.name, body)
		return err
	})
	g.sit(j, began, err)
	return j, err
}

// await asks what brokers may answer late, and sends heartbeats meanwhile: what we keep goes on, and is lost in time
// where nobody answers any more.
func (g *classic) await(ctx context.Context, me memberID, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.RebalanceTimeout+g.k.c.timeout)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- ask(ctx) }()
	tick := time.NewTicker(g.cfg.HeartbeatInterval)
	defer tick.Stop()
	over := g.over()
	for {
		select {
		case err := <-answer:
			return err
		case <-over:
			g.silence(g.failure())
			over = nil
		case <-tick.C:
			if err := g.keepAlive(ctx, me); err != nil {
				cancel()
				<-answer
				return err
			}
			over = g.over()
		}
	}
}

// keepAlive is the heartbeat beside a join or a sync. That the generation is over by now is no news; but a coordinator that
// says so does not count it as a sign of life, so the session goes on to its end: the answer to our join may be lost, and
// others have the partitions by then.
func (g *classic) keepAlive(ctx context.Context, me memberID) error {
	if me.member == "" || me.generation < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.beatTimeout())
	defer cancel()
	began := time.Now()
	err := g.k.heartbeat(ctx, me)
	switch codeOf(err) {
	case kafka.UnknownMemberId:
		return err
	case kafka.IllegalGeneration:
		g.trouble(began, nil)
		g.fails(err)
		g.silence(err)
		return nil
	case kafka.RebalanceInProgress:
		err = nil
	}
	if err == nil {
		g.answered(began)
		return nil
	}
	g.unanswered(err)
	return nil
}

// beatTimeout lets a heartbeat that gets no answer be sent again within the session, and waits for none beyond its end: then
// what we have is somebody else's.
func (g *classic) beatTimeout() time.Duration {
	d := min(g.k.c.timeout, g.cfg.SessionTimeout/2)
	if left := g.left(); left > 0 {
		d = min(d, left)
	}
	return d
}

// sit takes the place that a join has given. The coordinator counts the session from its answer, but nobody knows how long that
// was on its way: it may be older than the session, and the group has gone on without us. So what counts is when we asked, and
// the heartbeats that were answered meanwhile.
func (g *classic) sit(j joined, began time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.me, g.leads = j.memberID, j.leads
		if began.After(g.last) {
			g.last = began
		}
	case codeOf(err) == kafka.MemberIDRequired:
		g.me.member = j.member
	}
}

// plan is the leader's work.
func (g *classic) plan(ctx context.Context, subs []subscriber) (map[string][]partitionID, error) {
	ts, err := g.k.c.topics(ctx, wanted(subs))
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int32)
	for name, t := range ts {
		if t.err == nil {
			counts[name] = int32(len(t.leaders))
		}
	}
	plan := g.proto.plan(subs, counts)
	if g.cfg.plan != nil {
		plan = g.cfg.plan(plan)
	}
	if g.proto.cooperative {
		plan = cooperative(plan, subs)
	}
	g.mu.Lock()
	g.shared = counts
	g.mu.Unlock()
	return plan, nil
}

// apply takes up an assignment.
func (g *classic) apply(got []partitionID) {
	g.mu.Lock()
	g.target = make(map[partitionID]bool)
	var add, drop []partitionID
	for _, p := range got {
		g.target[p] = true
		if !g.owned[p] {
			g.owned[p] = true
			add = append(add, p)
		}
	}
	for _, p := range sorted(g.owned) {
		if !g.target[p] && !g.draining[p] {
			g.draining[p] = true
			drop = append(drop, p)
		}
	}
	g.asked = g.asked || len(g.draining) > 0
	g.mu.Unlock()
	if len(drop) > 0 {
		g.tell(change{kind: revoking, parts: drop})
	}
	if len(add) > 0 {
		g.tell(change{kind: assigned, parts: add})
	}
}

// yield gives up everything, as the eager protocol wants before each join, while heartbeats go on.
func (g *classic) yield(ctx context.Context) error {
	g.apply(nil)
	return g.beat(ctx, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.owned) == 0
	})
}

func (g *classic) release(parts []partitionID) {
	var again []partitionID
	g.mu.Lock()
	for _, p := range parts {
		if !g.draining[p] { // not asked for: Close releases what it had, and must not join again for it
			continue
		}
		delete(g.draining, p)
		if g.target[p] {
			again = append(again, p)
		} else {
			delete(g.owned, p)
			g.gave = true
		}
	}
	if g.gave && len(g.draining) == 0 && g.proto.cooperative {
		g.rejoin, g.gave = true, false
	}
	g.mu.Unlock()
	if len(again) > 0 {
		g.tell(change{kind: assigned, parts: again})
	}
	signal(g.poke)
}

var errRejoin = fmt.Errorf("the group wants us to join again: %w", kafka.RebalanceInProgress)

// beat sends heartbeats until it is time to join again, or until enough (where it is not nil) says so.
func (g *classic) beat(ctx context.Context, enough func() bool) error {
	tick := time.NewTicker(g.cfg.HeartbeatInterval)
	defer tick.Stop()
	for {
		if enough != nil && enough() {
			return nil
		}
		if enough == nil && g.wantsJoin() {
			return errRejoin
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.poke:
			continue
		case <-g.over():
			return g.failure()
		case <-tick.C:
		}
		began := time.Now()
		beatCtx, cancel := context.WithTimeout(ctx, g.beatTimeout())
		err := g.k.heartbeat(beatCtx, g.self())
		cancel()
		switch code := codeOf(err); {
		case err == nil:
			g.answered(began)
		case code == kafka.RebalanceInProgress:
			g.answered(began)
			if enough == nil {
				return err
			}
		case code == kafka.UnknownMemberId, code == kafka.IllegalGeneration, refused(err):
			return err
		case g.silent():
			// The group may still have us as we were, for a broker that starts again gives its members new sessions. Were we to go on with
			// heartbeats it would wait for ever for work that we have lost.
			return err
		case ctx.Err() == nil:
			g.unanswered(err)
		}
	}
}

// wantsJoin says whether something calls for a new generation: partitions were released, or topics are not what they were.
func (g *classic) wantsJoin() bool {
	names := g.topics()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rejoin || !slices.Equal(names, g.names)
}

// look lets the leader call for a new generation where its plan was made of other topics.
func (g *classic) look(v survey) {
	g.mu.Lock()
	for name, n := range v.counts {
		if have, known := g.shared[name]; g.leads && g.shared != nil &&
			(!known && n > 0 && slices.Contains(g.names, name) || known && have != n) {
			g.rejoin = true
		}
	}
	g.mu.Unlock()
	signal(g.poke)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
