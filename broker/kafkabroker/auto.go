package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/chance"
)

// auto is the membership that finds out which protocol its group is to speak, and then is that one.
type auto struct {
	host
	k       *coordinator
	cfg     *Config
	classic *classic
	modern  *modern

	mu     sync.Mutex
	chosen membership // nil: not yet
}

var _ membership = (*auto)(nil)

func newAuto(k *coordinator, cfg *Config, of host) *auto {
	m := newModern(k, cfg, of)
	m.yields = true
	return &auto{host: of, k: k, cfg: cfg, classic: newClassic(k, cfg, of), modern: m}
}

func (g *auto) now() membership {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.chosen
}

func (g *auto) run(ctx context.Context) error {
	var c choice
	for {
		facts, err := g.k.facts(ctx, g.cfg)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			c = facts.choose()
			break
		}
		if refused(err) {
			return err
		}
		g.trouble(time.Time{}, err)
		pause(ctx, retryWait+chance.Below(retryWait))
	}
	if c.consumer {
		g.become(g.modern, c)
		err := g.modern.run(ctx)
		code := codeOf(err)
		if ctx.Err() != nil || code != kafka.GroupIdNotFound && code != kafka.UnsupportedVersion || g.modern.joined() {
			return err
		}
		c = choice{why: fmt.Sprintf("the group does not take the consumer protocol: %v", err), migrate: migrateLater}
	}
	g.become(g.classic, c)
	return g.classic.run(ctx)
}

// become takes up a protocol, and says so.
func (g *auto) become(m membership, c choice) {
	g.mu.Lock()
	g.chosen = m
	g.mu.Unlock()
	g.say(broker.Event{Kind: broker.Notice, Err: errors.New(c.line(g.cfg.Group))})
}

func (g *auto) release(parts []partitionID) {
	if m := g.now(); m != nil {
		m.release(parts)
	}
}

func (g *auto) look(v survey) {
	g.classic.look(v)
	g.modern.look(v)
}

func (g *auto) self() memberID {
	if m := g.now(); m != nil {
		return m.self()
	}
	return memberID{generation: -1}
}

func (g *auto) committers() func(partitionID) (memberID, bool) {
	if m := g.now(); m != nil {
		return m.committers()
	}
	return func(partitionID) (memberID, bool) { return memberID{}, false }
}

func (g *auto) assigns(p partitionID, id topicID) bool {
	m := g.now()
	return m != nil && m.assigns(p, id)
}

func (g *auto) lapsed(now time.Time) bool {
	m := g.now()
	return m == nil || m.lapsed(now)
}

func (g *auto) leave(ctx context.Context) error {
	if m := g.now(); m != nil {
		return m.leave(ctx)
	}
	return nil
}

// groupFacts are what a choice is made by.
type groupFacts struct {
	roundRobin bool   // our balancer, which brokers do not have
	speaks     bool   // the broker knows the consumer protocol
	epochs     bool   // and checks commits by the epochs of partitions
	unreadable error  // why it is not known whether it does; nil: it is
	members    int    // of a classic group
	state      string // of a classic group
}

// A choice is the protocol that a group speaks, and why.
type choice struct {
	consumer bool
	why      string
	migrate  string // how to come to the other one
}

const (
	migrateNow = "to change it, set membership to consumer and restart the processes one by one: the group goes over while it " +
		"runs, if its members' clients are longshore, or Java with subscriptions of its own"
	migrateLater = "to change it, let all members end at once, and start them again"
	migrateBack  = "to go back, set membership to classic and restart the processes one by one"
	upgrade      = "it is chosen by itself on Kafka 4.3 and newer"
)

// choose decides by them, never by the broker's version.
func (f groupFacts) choose() choice {
	switch {
	case f.roundRobin:
		return choice{why: "brokers have no assignor roundrobin", migrate: "set balancer to sticky or range for the consumer protocol"}
	case !f.speaks:
		return choice{why: "the broker does not know the consumer protocol", migrate: upgrade}
	case f.unreadable != nil:
		return choice{why: fmt.Sprintf("the group's settings cannot be read (%v)", f.unreadable),
			migrate: "allow DescribeConfigs on the group"}
	case !f.epochs:
		return choice{why: "the broker does not check commits by the epochs of partitions", migrate: upgrade}
	case f.members > 0:
		return choice{why: fmt.Sprintf("the group is a classic one with %d members (%s)", f.members, f.state), migrate: migrateNow}
	}
	return choice{consumer: true, why: "the broker assigns partitions one by one, and the group has no classic members",
		migrate: migrateBack}
}

// line is what is said of it.
func (c choice) line(group string) string {
	protocol := "classic"
	if c.consumer {
		protocol = "consumer"
	}
	return fmt.Sprintf("group %s: protocol %s: %s; %s", group, protocol, c.why, c.migrate)
}

// facts asks the group's coordinator.
func (k *coordinator) facts(ctx context.Context, cfg *Config) (f groupFacts, err error) {
	f.roundRobin = assignors[cfg.Balancer] == ""
	node, err := k.find(ctx)
	if err != nil || f.roundRobin {
		return f, err
	}
	vs, err := k.c.ask(ctx, node)
	if err != nil {
		k.forgetUnless(ctx)
		return f, err
	}
	if _, err := choose(vs, keyConsumerGroupHeartbeat, 1); err != nil {
		return f, nil
	}
	f.speaks = true
	settings, err := k.settings(ctx)
	switch {
	case err == nil:
		f.epochs = settings.epochs
	case codeOf(err) == kafka.InvalidRequest, errors.Is(err, errNoSettings): // it has none of groups
	case refused(err):
		f.unreadable = err
	default:
		return f, err
	}
	d, err := k.describe(ctx)
	f.state, f.members = d.state, d.members
	return f, err
}
