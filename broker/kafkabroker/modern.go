package kafkabroker

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/chance"
)

// modern is the membership by ConsumerGroupHeartbeat (KIP-848): the group's coordinator assigns partitions one by one. What to
// say and to do is decided by member; modern talks, and alone tells changes, so that they are told in the order in which they
// came.
type modern struct {
	host
	k       *coordinator
	cfg     *Config
	strange bool // the group seemed to be of another kind when we last tried to join

	yields bool // run ends where the group is a classic one that this protocol cannot join

	poke chan struct{}

	// run's alone.
	m        *member
	unsure   bool  // the group may have us, although it has not told us so, or has fenced us
	version  int   // of m, as published
	epoch    int32 // the same
	readAt   time.Time
	complain groupSettings // what was warned about
	blind    bool          // it was said that the settings cannot be read

	mu       sync.Mutex
	released []partitionID // to be told to m
	names    map[topicID]string
	me       memberID
	has      map[partitionID]tenure // never changed: another one is put in its place
	session  session                // as long as the group's settings say, and where they cannot be read, ours
	epochs   bool                   // see groupSettings
}

var _ membership = (*modern)(nil)

func newModern(k *coordinator, cfg *Config, of host) *modern {
	g := &modern{host: of, k: k, cfg: cfg, poke: make(chan struct{}, 1), session: session{length: cfg.SessionTimeout}}
	id := cfg.MemberID
	if id == "" {
		id = newMemberID()
	}
	g.m = newMember(id, cfg.InstanceID, cfg.HeartbeatInterval)
	g.version = -1 // nothing is published
	g.publish()
	return g
}

// newMemberID is a random UUID, as the protocol wants it of clients.
func newMemberID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (g *modern) self() memberID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.me
}

// committers says for each partition of ours the epoch at which it was assigned to us: a commit from before it went away and
// came back is refused. Brokers that know only one epoch for all (before Kafka 4.3) want that.
func (g *modern) committers() func(partitionID) (memberID, bool) {
	g.mu.Lock()
	me, has, one := g.me, g.has, !g.epochs
	g.mu.Unlock()
	return func(p partitionID) (memberID, bool) {
		t, ours := has[p]
		if !one {
			me.generation = t.since
		}
		return me, ours
	}
}

func (g *modern) assigns(p partitionID, id topicID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.has[p].id == id
}

func (g *modern) lapsed(now time.Time) bool { return g.contact().lapsed(now) }

// contact is how our session stands.
func (g *modern) contact() session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.session
}

func (g *modern) release(parts []partitionID) {
	g.mu.Lock()
	g.released = append(g.released, parts...)
	g.mu.Unlock()
	signal(g.poke)
}

func (g *modern) look(v survey) {
	g.mu.Lock()
	g.names = make(map[topicID]string, len(v.topics))
	for name, t := range v.topics {
		if t.err == nil && t.id != (topicID{}) {
			g.names[t.id] = name
		}
	}
	g.mu.Unlock()
	signal(g.poke)
}

func (g *modern) leave(ctx context.Context) error {
	b := beat{member: g.m.id, instance: g.m.instance, epoch: leaveEpoch}
	if !g.joined() && !g.unsure { // nobody knows us
		return nil
	}
	if g.m.instance != "" { // it keeps its place for its next start
		b.epoch = leaveStaticEpoch
	}
	return sayGoodbye(ctx, func() error {
		_, err := g.k.beat(ctx, b)
		return err
	})
}

func (g *modern) run(ctx context.Context) error {
	for g.rest(ctx) {
		g.silence()
		if !time.Now().Before(g.readAt) {
			g.learn(ctx)
			g.silence() // the session may have ended meanwhile, and the heartbeat waits for an answer beyond that
		}
		if err := g.beat(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rest waits until the next heartbeat is due, and meanwhile takes what others tell; false: ctx has ended.
func (g *modern) rest(ctx context.Context) bool {
	for ctx.Err() == nil {
		now := time.Now()
		g.take(now)
		if !now.Before(g.m.due) {
			return true
		}
		wait := time.NewTimer(g.m.due.Sub(now))
		select {
		case <-ctx.Done():
		case <-g.poke:
		case <-wait.C:
		}
		wait.Stop()
	}
	return false
}

// take takes what others told.
func (g *modern) take(now time.Time) {
	g.mu.Lock()
	released, names := g.released, g.names
	g.released, g.names = nil, nil
	g.mu.Unlock()
	changes := g.m.named(names)
	changes = append(changes, g.m.released(released, now)...)
	g.m.enlist(g.terms(), now)
	g.announce(changes)
}

// terms are what the group is to know of us.
func (g *modern) terms() enlistment {
	t := enlistment{regex: g.cfg.Pattern, assignor: assignors[g.cfg.Balancer], rack: g.cfg.Rack, rebalance: g.cfg.RebalanceTimeout}
	if t.regex == "" {
		t.topics = g.topics()
	}
	return t
}

// assignors are the broker's, by the names of our balancers.
var assignors = map[string]string{"sticky": "uniform", "range": "range"}

// joined says whether the group has taken us in.
func (g *modern) joined() bool { return g.m.epoch != joinEpoch }

// announce tells changes. Who we are for commits is known before: a claim that begins commits at once.
func (g *modern) announce(changes []change) {
	g.publish()
	for _, c := range changes {
		g.tell(c)
	}
}

func (g *modern) publish() {
	if g.version == g.m.version && g.epoch == g.m.epoch {
		return
	}
	g.version, g.epoch = g.m.version, g.m.epoch
	has := g.m.has()
	g.mu.Lock()
	g.me = memberID{member: g.m.id, instance: g.m.instance, generation: g.m.epoch, modern: true}
	g.has = has
	g.mu.Unlock()
}

// beat sends a heartbeat and does what its answer calls for. An error is one that another try would not change.
func (g *modern) beat(ctx context.Context) error {
	b := g.m.beat()
	beatCtx, cancel := context.WithTimeout(ctx, g.patience())
	began := time.Now()
	a, err := g.k.beat(beatCtx, b.beat)
	cancel()
	g.unsure = err != nil && codeOf(err) != kafka.UnknownMemberId && !refusedForGood(err)
	if ctx.Err() != nil { // it may be on its way: leave says that we are gone
		return nil
	}
	g.heard(began, err)
	if err == nil {
		changes, unnamed := g.m.answered(b, a, time.Now())
		g.trouble(began, nil)
		g.announce(changes)
		if unnamed {
			g.find()
		}
		return nil
	}
	return g.mend(ctx, err)
}

// mend does what an error calls for.
func (g *modern) mend(ctx context.Context, err error) error {
	now := time.Now()
	again := now.Add(retryWait + chance.Below(retryWait))
	switch code := codeOf(err); {
	case code == kafka.UnknownMemberId && g.cfg.MemberID == "" && g.cfg.InstanceID == "":
		g.lose(err, again, newMemberID())
		return nil
	case code == kafka.UnknownMemberId, code == fencedMemberEpoch, code == kafka.GroupIdNotFound && g.joined():
		g.lose(err, again, g.m.id)
		return nil
	case code == kafka.GroupIdNotFound && !g.yields && !g.joined() && g.isForeign(ctx):
		return g.k.foreign(err)
	case g.contact().withdrawn(err):
		again = now.Add(g.m.normal)
	case refusedForGood(err), g.yields && code == kafka.GroupIdNotFound:
		g.lose(err, again, g.m.id)
		return err
	case code == kafka.GroupMaxSizeReached:
		err = g.k.full(err, "group.consumer.max.size")
		again = now.Add(g.m.normal)
	case code == unreleasedInstanceID, code == kafka.GroupIdNotFound:
		again = now.Add(g.m.normal)
	}
	if s := g.contact(); g.joined() && !s.lapsed(now) { // silence looks when the session is over
		again = sooner(again, s.ends())
	}
	g.m.unanswered(again)
	g.trouble(time.Time{}, err)
	g.silence()
	return nil
}

// isForeign says that the group is of another kind for sure. Once is not: a classic group may have ended between the two
// questions, and then the next heartbeat founds it anew.
func (g *modern) isForeign(ctx context.Context) bool {
	if !g.k.isForeign(ctx) {
		g.strange = false
		return false
	}
	again := g.strange
	g.strange = true
	return again
}

// silence loses everything when nobody has answered for a session: the group gives it to others from then on.
func (g *modern) silence() {
	if s := g.contact(); g.joined() && s.silent(time.Now()) {
		g.lose(fmt.Errorf("no answer for %v: %w", s.length, s.failed), g.m.due, g.m.id)
	}
}

// refusedForGood says that another heartbeat would be answered the same.
func refusedForGood(err error) bool {
	switch codeOf(err) {
	case unsupportedAssignor, invalidRegex, kafka.UnsupportedVersion, kafka.InvalidRequest:
		return true
	}
	return refused(err)
}

func (g *modern) lose(err error, again time.Time, name string) {
	parts := g.m.lose(again, name)
	var changes []change
	if len(parts) > 0 {
		changes = []change{{kind: lost, parts: parts, err: fmt.Errorf("%w: %w", broker.ErrLost, err)}}
	}
	g.announce(changes)
}

// heard takes note of the answer, or of no answer, to what was asked at a time.
func (g *modern) heard(asked time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.session.failed = err
		return
	}
	g.session.answered(asked)
}

// patience is how long to wait for the answer to a heartbeat. One that joins waits as long as any request: nothing of ours ends
// meanwhile, and over a slow network no answer may ever come in half a session.
func (g *modern) patience() time.Duration {
	if !g.joined() {
		return g.k.c.timeout
	}
	return g.contact().patience(time.Now(), g.k.c.timeout)
}
