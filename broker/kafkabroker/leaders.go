package kafkabroker

import (
	"context"
	"sync/atomic"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// leaders know how the topics are laid out that are published to. Looking takes no lock. What is not known yet, or was doubted,
// is asked for by one caller at a time, and the others wait for its answer; what is merely old is used meanwhile.
type leaders struct {
	c      *cluster
	life   context.Context
	asking chan struct{} // of capacity 1: who holds it asks
	known  atomic.Pointer[map[string]*written]
	failed askFailed // of who holds asking
}

// An askFailed is a question that nobody answered, and when it was asked. It is the answer to all who waited by then: were each
// of them to ask anew, one behind the other, the last of many callers would wait for as many timeouts.
type askFailed struct {
	at  time.Time
	err error
}

// A written is a topic that is written to.
type written struct {
	topic
	at      time.Time // when that was said
	doubted atomic.Bool
	keyless keyless
}

func newLeaders(c *cluster, life context.Context) *leaders {
	l := &leaders{c: c, life: life, asking: make(chan struct{}, 1)}
	l.known.Store(&map[string]*written{})
	return l
}

// errorAge is how long it is believed that a topic is not there.
const errorAge = retryWait

// usable says whether w may be used without asking again.
func (w *written) usable(now time.Time) bool {
	return w != nil && (w.err == nil && !w.doubted.Load() || now.Sub(w.at) < errorAge)
}

// of are the topics of some messages, for who began to wait now. It waits for an answer where one is not known.
func (l *leaders) of(ctx context.Context, now time.Time, ms []broker.Outgoing, which []int) (map[string]*written, error) {
	known, rest, old := l.look(now, ms, which)
	switch {
	case len(rest) == 0 && len(old) == 0:
		return known, nil
	case len(rest) == 0:
		select {
		case l.asking <- struct{}{}:
		default:
			return known, nil // somebody asks already
		}
	default:
		select {
		case l.asking <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-l.asking }()
	if known, rest, old = l.look(time.Now(), ms, which); len(rest)+len(old) == 0 { // somebody has asked meanwhile
		return known, nil
	}
	if f := l.failed; f.err != nil && len(rest) > 0 && !f.at.Before(now) {
		return nil, f.err
	}
	asked := time.Now()
	err := l.ask(ctx, append(rest, old...))
	if l.failed = (askFailed{}); err != nil && ctx.Err() == nil { // else it was not the brokers that did not answer
		l.failed = askFailed{asked, err}
	}
	if err != nil && len(rest) > 0 {
		return nil, err
	}
	return *l.known.Load(), nil
}

// look tells which topics are not known, and which were asked for long ago.
func (l *leaders) look(now time.Time, ms []broker.Outgoing, which []int) (known map[string]*written, rest, old []string) {
	known = *l.known.Load()
	last := ""
	for _, i := range which {
		name := ms[i].Topic
		if name == last {
			continue
		}
		last = name
		switch w := known[name]; {
		case !w.usable(now):
			rest = append(rest, name)
		case now.Sub(w.at) > layoutAge:
			old = append(old, name)
		}
	}
	return known, rest, old
}

// ask asks for topics. Of those that nobody has asked for in a long time nothing is kept.
func (l *leaders) ask(ctx context.Context, names []string) error {
	fresh := make(map[string]*written)
	var valid []string
	for _, name := range names {
		switch {
		case fresh[name] != nil:
		case !ValidTopic(name):
			fresh[name] = &written{topic: topic{name: name, err: kafka.InvalidTopic}, at: time.Now()}
		default:
			fresh[name] = &written{topic: topic{name: name, err: kafka.UnknownTopicOrPartition}}
			valid = append(valid, name)
		}
	}
	if len(valid) > 0 {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(l.life, cancel)()
		ts, err := l.c.topics(ctx, valid)
		if err != nil {
			return err
		}
		now := time.Now()
		for _, name := range valid {
			w := fresh[name]
			if t, ok := ts[name]; ok {
				w.topic = t
			}
			if w.at = now; w.err == nil && len(w.leaders) == 0 {
				w.err = kafka.UnknownTopicOrPartition
			}
		}
	}
	for name, w := range *l.known.Load() {
		if fresh[name] == nil && time.Since(w.at) < 10*layoutAge {
			fresh[name] = w
		}
	}
	l.known.Store(&fresh)
	return nil
}

// doubt has topics asked for again before they are written to: their leaders did not take what they were sent.
func (l *leaders) doubt(name string) {
	if w := (*l.known.Load())[name]; w != nil {
		w.doubted.Store(true)
	}
}
