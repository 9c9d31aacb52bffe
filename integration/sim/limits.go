package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// limits are those that a process wraps its handler in, and what they let through.
type limits struct {
	p      *process
	rate   *middleware.RateLimit
	keys   *middleware.KeyRateLimit // half of that, for each key
	atOnce *middleware.ConcurrencyLimit

	mu      sync.Mutex
	most    int // calls that may run
	running int
	changed time.Time // when most last was
	// bucket is as that of the rate.
	perSecond, tokens, burst float64
	filled                   time.Time
}

// limit wraps the handler of a process, where the settings say so.
func (p *process) limit(next consumer.Handler) (consumer.Handler, error) {
	s := p.run.schedule.Settings
	next, err := p.spare(next)
	if err != nil || s.AtOnce == 0 {
		return next, err
	}
	l := &limits{p: p, most: s.AtOnce, perSecond: float64(s.PerSecond), burst: float64(s.AtOnce), tokens: float64(s.AtOnce),
		filled: time.Now()}
	if l.atOnce, err = middleware.NewConcurrencyLimit(s.AtOnce); err != nil {
		return nil, err
	}
	if l.rate, err = middleware.NewRateLimit(l.perSecond, s.AtOnce); err != nil {
		return nil, err
	}
	if l.keys, err = middleware.NewKeyRateLimit(l.perSecond/2, s.AtOnce); err != nil {
		return nil, err
	}
	p.limits = l
	return l.keys.Middleware(l.rate.Middleware(l.atOnce.Middleware(l.through(next)))), nil
}

// shareLimits makes the limits of a process those of all together, where the settings say so. It has its sources by then.
func (p *process) shareLimits() error {
	if p.limits == nil || !p.run.schedule.Settings.Share {
		return nil
	}
	var sources []broker.Sharer
	for _, s := range p.spies {
		sources = append(sources, s.Source.(broker.Sharer))
	}
	if err := p.limits.atOnce.ShareBy(sources...); err != nil {
		return err
	}
	return p.limits.rate.ShareBy(sources...)
}

// through looks at each call that the limits let through.
func (l *limits) through(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		l.enter(numberOf(m.Value))
		defer l.leave()
		return next(ctx, m)
	}
}

func (l *limits) enter(message int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, b := time.Now(), l.p.run.book
	l.fill(now)
	l.running++
	if l.tokens--; l.tokens < -0.01 {
		b.find("%s: m%d is let through before its turn: the rate is %v/s, burst %v", l.p.name, message, l.perSecond, l.burst)
	}
	if l.running > l.most && now.After(l.changed) {
		b.find("%s: m%d is let through beside %d others, and %d may run", l.p.name, message, l.running-1, l.most)
	}
}

func (l *limits) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
}

// fill needs l.mu.
func (l *limits) fill(now time.Time) {
	l.tokens = min(l.burst, l.tokens+l.perSecond*now.Sub(l.filled).Seconds())
	l.filled = now
}

// set changes the limits while calls run.
func (l *limits) set(n int) error {
	l.mu.Lock()
	l.fill(time.Now())
	l.most, l.burst, l.perSecond, l.changed = n, float64(n), float64(leastPerSecond*n), time.Now()
	l.mu.Unlock()
	if err := l.atOnce.Set(n); err != nil {
		return err
	}
	return errors.Join(l.rate.Set(float64(leastPerSecond*n), n), l.keys.Set(float64(leastPerSecond*n)/2, n))
}

// leastPerSecond is the lowest rate: all messages have to get through while it is calm.
const leastPerSecond = 20
