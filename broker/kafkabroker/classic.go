package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/chance"
)

// classic is the membership by JoinGroup, SyncGroup and Heartbeat.
type classic struct {
	host
	k     *coordinator
	cfg   *Config
	proto scheme

	poke  chan struct{}
	quick int // rounds in a row that ended at once; run's alone

	// telling is held from a decision on what we have until it is told: run, and who releases, do both beside each other. The
	// sequence without it: a partition drains, and the group wants it again; release decides that it is assigned; run loses it, and
	// tells that first. Then a claim begins that is not ours, and nothing ends it. It is held over tell, which does not block.
	telling sync.Mutex

	mu      sync.Mutex
	me      memberID
	leads   bool
	session session
	has     ownership
	ungiven bool             // some partitions may be nobody's: see settle
	shared  map[string]int32 // what the leader's plan was made of
	knew    map[string]int32 // how many partitions topics have, as a plan believes it; 0: it is gone
	others  []string         // the leader's: topics that others subscribe to and we do not
	mute    map[string]bool  // of those: brokers refuse to tell of it, and that was told
	watched time.Time        // when they were asked for last; zero: it is time to
	counts  map[string]int32 // of the last look; nil: there was none
	changed bool             // that was another than the one before
	names   []string         // what we subscribed to
}

var _ membership = (*classic)(nil)

func newClassic(k *coordinator, cfg *Config, of host) *classic {
	return &classic{
		host: of, k: k, cfg: cfg, proto: schemes[cfg.Balancer], poke: make(chan struct{}, 1),
		me:      memberID{instance: cfg.InstanceID, generation: -1},
		session: session{length: cfg.SessionTimeout}, has: newOwnership(schemes[cfg.Balancer].cooperative),
		ungiven: cfg.InstanceID != "", knew: make(map[string]int32),
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

func (g *classic) lapsed(now time.Time) bool { return g.contact().lapsed(now) }

// contact is how our session stands.
func (g *classic) contact() session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.session
}

// owes says whether the group waits for us: it wants partitions for others, and only our next join would say that we have let
// them go.
func (g *classic) owes() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.has.owes
}

func (g *classic) leave(ctx context.Context) error {
	me := g.self()
	if me.member == "" || me.instance != "" && !g.owes() { // a static member keeps its place for its next start
		return nil
	}
	return sayGoodbye(ctx, func() error { return g.k.leave(ctx, me) })
}

func (g *classic) run(ctx context.Context) error {
	for {
		began := time.Now()
		err := g.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && refused(err) && !g.contact().withdrawn(err) {
			g.lose(err)
			return g.explain(ctx, err)
		}
		if g.mend(began, err) {
			g.rest(ctx, err)
		}
		if codeOf(err) == kafka.GroupMaxSizeReached {
			g.standBack(ctx)
		}
	}
}

// explain says which setting does not go with the group as it is, where that is why it refused us.
func (g *classic) explain(ctx context.Context, err error) error {
	switch {
	case codeOf(err) != kafka.InconsistentGroupProtocol:
		return err
	case g.k.isForeign(ctx):
		return g.k.foreign(err)
	}
	return fmt.Errorf("%w: %w", wrong("Balancer",
		"is %q, which not all members of group %q have%s: choose theirs, or stop them first",
		g.cfg.Balancer, g.cfg.Group, g.k.sharedBy(ctx)), err)
}

// rest waits before the next try. Where the session is over meanwhile, what we have ends then: others may have it from then on.
func (g *classic) rest(ctx context.Context, err error) {
	wait := retryWait + chance.Below(retryWait)
	s := g.contact()
	if s.withdrawn(err) {
		wait = g.cfg.HeartbeatInterval
	}
	if left := time.Until(s.ends()); 0 < left && left < wait {
		if pause(ctx, left); ctx.Err() == nil {
			g.silence(err)
		}
		wait -= left
	}
	pause(ctx, wait)
}

// standBack waits, where the group was full, until it is no longer joining anew: who comes then takes the place of a member that
// was to join a moment later. The coordinator puts that one out, and lets the others wait for it for a rebalance timeout.
func (g *classic) standBack(ctx context.Context) {
	for ctx.Err() == nil {
		if d, err := g.k.describe(ctx); err != nil || d.state != stateJoining {
			return
		}
		pause(ctx, retryWait+chance.Below(retryWait))
	}
}

// mend does what an error calls for. It says whether to wait before the next try.
func (g *classic) mend(began time.Time, err error) (wait bool) {
	switch codeOf(err) {
	case kafka.MemberIDRequired, kafka.RebalanceInProgress:
		if !errors.Is(err, errRejoin) { // that is our own word, and the coordinator may be away
			g.answered(began)
		}
		return g.hasty(began)
	case kafka.UnknownMemberId:
		g.out(err)
		return true
	case kafka.GroupMaxSizeReached:
		// Where we were a member: others came first when the group joined anew, and the coordinator has put us out. It gives our
		// partitions to them as soon as all that are left have joined.
		err = g.k.full(err, "group.max.size")
		g.out(err)
	case kafka.IllegalGeneration:
		g.lose(err)
		return true
	}
	if err != nil {
		g.unanswered(err)
	}
	return err != nil
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

// out says that the group does not know us.
func (g *classic) out(err error) {
	g.lose(err)
	g.mu.Lock()
	g.me.member, g.me.generation = "", -1
	g.mu.Unlock()
}

func (g *classic) lose(err error) {
	g.telling.Lock()
	defer g.telling.Unlock()
	g.mu.Lock()
	parts := g.has.lose()
	g.mu.Unlock()
	if len(parts) > 0 {
		g.tell(change{kind: lost, parts: parts, err: fmt.Errorf("%w: %w", broker.ErrLost, err)})
	}
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
	g.has.owes = false // by the plan that we joined for
	g.mu.Unlock()
	g.apply(got)
	return g.beat(ctx, nil)
}

// settle looks whether the group has its partitions all given to somebody, and lets us join again where not. It does so where a
// static member came back. The sequence: the member is to give some up, and ends before it has joined again without them; it
// comes back within its session; the group gives it its place without a new plan, and in the old one nobody has what it was to
// give up. Other members have nothing to tell, and would wait for ever.
//
// And it does so where there are other partitions than before. The leader sees that and makes a new plan, but there may be none:
// the group does not tell a static member that comes back that it leads (KIP-814). So it looks at the topics of the others, too:
// nobody else may know by now that the last plan was made without one.
func (g *classic) settle(ctx context.Context) {
	g.mu.Lock()
	look := g.ungiven
	g.ungiven = false
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
	g.has.rejoin = g.has.rejoin || !all || err != nil // a join too many does no harm
	g.mu.Unlock()
}

// watch lets the leader look at the topics that only others subscribe to, as often as at its own, and every now and then while it
// does not know one, for which its plan has nothing. The sequence without it: the plan is made while the broker that is asked
// does not tell of such a topic; who subscribes to it was told of it before and after, and has nothing new to see.
func (g *classic) watch(ctx context.Context) {
	g.mu.Lock()
	names, due := g.others, g.leads && (g.watched.IsZero() || time.Since(g.watched) >= g.watchWait())
	g.mu.Unlock()
	if !due || len(names) == 0 {
		return
	}
	var ts map[string]topic
	err := g.await(ctx, g.self(), func(ctx context.Context) (err error) {
		ts, err = g.k.c.topics(ctx, names)
		return err
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watched = time.Now()
	for _, name := range names {
		if t, known := ts[name]; err == nil && known && t.err == nil && int32(len(t.leaders)) != g.shared[name] {
			g.has.rejoin = true
		}
	}
}

// watchWait is how long to wait for the next look at topics of others, where no look at our own comes before. One that brokers
// refuse to tell of is asked for no more often than that.
func (g *classic) watchWait() time.Duration {
	for _, name := range g.others {
		if _, known := g.shared[name]; !known && !g.mute[name] {
			return unsure
		}
	}
	return math.MaxInt64
}

// warn tells of topics of others that brokers refuse to tell the leader of. Nobody else can say why nobody has their partitions.
func (g *classic) warn(ts map[string]topic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.mute
	g.mute = make(map[string]bool)
	for _, name := range g.others {
		if t := ts[name]; refused(t.err) {
			g.mute[name] = true
			if !was[name] {
				g.say(broker.Event{Kind: broker.Warning, Err: fmt.Errorf("topic %s, which other members of group %s subscribe to: "+
					"nobody gets its partitions, for this member shares out, and brokers do not tell it of them: %w",
					name, g.cfg.Group, t.err)})
			}
		}
	}
}

// allGiven says whether each partition of topics, and of those that the others subscribe to, is some member's.
func (g *classic) allGiven(ctx context.Context, names []string) (bool, error) {
	d, err := g.k.describe(ctx)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		d.topics[name] = true
	}
	ts, err := g.k.c.topics(ctx, slices.Sorted(maps.Keys(d.topics)))
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
	g.names = g.topics()
	me := g.me
	body := subscription(g.names, g.has.join(), me.generation)
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

// sit takes the place that a join has given. Its answer may be older than the session, and the group has gone on without us: so
// what counts is when we asked, and the heartbeats that were answered meanwhile.
func (g *classic) sit(j joined, began time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.me, g.leads = j.memberID, j.leads
		g.session.heard(began)
	case codeOf(err) == kafka.MemberIDRequired:
		g.me.member = j.member
	}
}

// plan is the leader's work.
func (g *classic) plan(ctx context.Context, subs []subscriber) (map[string][]partitionID, error) {
	names := wanted(subs)
	ts, err := g.k.c.topics(ctx, names)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	counts := g.believe(names, ts)
	g.shared, g.watched = counts, time.Now()
	g.others = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(g.names, name) })
	g.mu.Unlock()
	g.warn(ts)
	plan := g.proto.plan(subs, counts)
	if g.cfg.plan != nil {
		plan = g.cfg.plan(plan)
	}
	if g.proto.cooperative {
		plan = cooperative(plan, subs)
	}
	return plan, nil
}

// believe is how many partitions topics have, for a plan. A broker that has just started does not know some of them yet, or has
// not heard of their last partitions. Were it believed, their claims would end, and begin anew after the next plan. So a topic
// has as many as the last look at it said, and one that only others subscribe to, as the last answer: where the next one says
// the same, it is so.
func (g *classic) believe(names []string, ts map[string]topic) map[string]int32 {
	counts := make(map[string]int32)
	for _, name := range names {
		t, n := ts[name], int32(0)
		if t.err == nil {
			n = int32(len(t.leaders))
		}
		if is := max(n, g.knew[name]); is > 0 && !refused(t.err) {
			counts[name] = is
		}
		if !slices.Contains(g.names, name) {
			g.knew[name] = n
		}
	}
	maps.DeleteFunc(g.knew, func(name string, _ int32) bool { return !slices.Contains(names, name) })
	return counts
}

// apply takes up a plan of the group.
func (g *classic) apply(plan []partitionID) {
	g.telling.Lock()
	defer g.telling.Unlock()
	g.mu.Lock()
	add, drop := g.has.follow(plan)
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
		return len(g.has.owned) == 0
	})
}

func (g *classic) release(parts []partitionID) {
	g.telling.Lock()
	defer g.telling.Unlock()
	g.mu.Lock()
	again := g.has.release(parts)
	g.mu.Unlock()
	if len(again) > 0 {
		g.tell(change{kind: assigned, parts: again})
	}
	signal(g.poke)
}

// wantsJoin says whether something calls for a new generation: partitions were released, or topics are not what they were.
func (g *classic) wantsJoin() bool {
	names := g.topics()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.has.rejoin || !slices.Equal(names, g.names)
}

// look lets the leader call for a new generation where its plan was made of other topics, and others see whether it has.
func (g *classic) look(v survey) {
	g.mu.Lock()
	for name, n := range v.counts {
		if have, known := g.shared[name]; g.leads && g.shared != nil &&
			(!known && n > 0 && slices.Contains(g.names, name) || known && have != n) {
			g.has.rejoin = true
		}
	}
	maps.Copy(g.knew, v.counts)
	g.watched = time.Time{}
	changed := g.counts != nil && !maps.Equal(g.counts, v.counts)
	// At the next look, too: the leader may ask a broker that does not know yet.
	g.ungiven = g.ungiven || !g.leads && (changed || g.changed)
	g.counts, g.changed = v.counts, changed
	g.mu.Unlock()
	signal(g.poke)
}
