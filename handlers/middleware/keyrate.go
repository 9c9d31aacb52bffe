package middleware

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"golang.org/x/time/rate"
)

// A KeyRateLimit lets calls for messages of one key begin at a rate at most; its Middleware is a consumer.Middleware. A message
// that is early waits without a worker (see consumer.Defer). Messages without a key are not limited. Keys are told apart by a
// 64-bit hash; one whose bucket is full again is forgotten, so that memory follows the keys that were seen of late. Of more than
// MaxKeys those that have most of their tokens back are forgotten first, and may begin as new ones. Safe for concurrent use.
type KeyRateLimit struct {
	mu        sync.Mutex
	perSecond float64
	burst     int
	buckets   map[uint64]*rate.Limiter
	sweep     int // calls until the full buckets are forgotten
}

// MaxKeys is how many keys are remembered at most, about 20 MB.
const MaxKeys = 100_000

var keySeed = maphash.MakeSeed()

// NewKeyRateLimit allows each key perSecond calls a second on average and burst at once. math.Inf(1) per second lets all pass.
func NewKeyRateLimit(perSecond float64, burst int) (*KeyRateLimit, error) {
	l := &KeyRateLimit{buckets: map[uint64]*rate.Limiter{}}
	return l, l.Set(perSecond, burst)
}

// Set changes the limit. Messages that wait look again when their time is over as it was.
func (l *KeyRateLimit) Set(perSecond float64, burst int) error {
	if err := checkRate(perSecond, burst); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(perSecond, burst)
	return nil
}

// Kind is key_rate_limit, its name in a configuration file.
func (l *KeyRateLimit) Kind() string { return "key_rate_limit" }

// Settings are per_second and burst, as last set.
func (l *KeyRateLimit) Settings() map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settings()
}

// settings needs l.mu.
func (l *KeyRateLimit) settings() map[string]float64 {
	return map[string]float64{settingPerSecond: l.perSecond, settingBurst: float64(l.burst)}
}

// Change is as RateLimit.Change.
func (l *KeyRateLimit) Change(settings map[string]float64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, err := changed(l.Kind(), l.settings(), settings)
	if err != nil {
		return err
	}
	l.set(next[settingPerSecond], int(next[settingBurst]))
	return nil
}

// set needs l.mu.
func (l *KeyRateLimit) set(perSecond float64, burst int) {
	l.perSecond, l.burst = perSecond, burst
	now := time.Now()
	for _, b := range l.buckets {
		b.SetLimitAt(now, limitOf(perSecond))
		b.SetBurstAt(now, burst)
	}
}

// Middleware defers what is early.
func (l *KeyRateLimit) Middleware(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		if m.Key != nil {
			if wait := l.take(maphash.Bytes(keySeed, m.Key), time.Now()); wait > 0 {
				return consumer.Defer(wait, nil)
			}
		}
		return next(ctx, m)
	}
}

// longestWait is how long a message waits at most until it looks again, for the limit may be another by then.
const longestWait = 10 * time.Second

// take takes a token of a key, or says how long until there may be one.
func (l *KeyRateLimit) take(key uint64, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweep--; l.sweep < 0 {
		l.forgetFull(now)
	}
	b := l.buckets[key]
	if b == nil {
		if len(l.buckets) >= MaxKeys {
			l.forgetHalf(now)
		}
		b = rate.NewLimiter(limitOf(l.perSecond), l.burst)
		l.buckets[key] = b
	}
	r := b.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return min(wait, longestWait)
}

// forgetFull forgets the keys that have all their tokens: a new bucket has them, too.
func (l *KeyRateLimit) forgetFull(now time.Time) {
	for key, b := range l.buckets {
		if b.TokensAt(now) >= float64(l.burst) {
			delete(l.buckets, key)
		}
	}
	l.sweep = max(1024, len(l.buckets))
}

// forgetHalf forgets the half of the keys that have most of their tokens.
func (l *KeyRateLimit) forgetHalf(now time.Time) {
	type saved struct {
		key    uint64
		tokens float64
	}
	all := make([]saved, 0, len(l.buckets))
	for key, b := range l.buckets {
		all = append(all, saved{key, b.TokensAt(now)})
	}
	slices.SortFunc(all, func(a, b saved) int { return cmp.Compare(b.tokens, a.tokens) })
	for _, s := range all[:len(all)/2] {
		delete(l.buckets, s.key)
	}
}

// Keys is how many keys are remembered.
func (l *KeyRateLimit) Keys() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buckets)
}
