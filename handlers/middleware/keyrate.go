package middleware

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// A KeyRateLimit lets calls for messages of one key begin at a rate at most; its Middleware is a consumer.Middleware. A message
// that is early waits for its turn without a worker, as with a RateLimit. Messages without a key are not limited. Keys are told
// apart by a 64-bit hash; one whose bucket is full again is forgotten, so that memory follows the keys that were seen of late. Of
// more than MaxKeys those that have most of their tokens back are forgotten first, and may begin as new ones. Safe for concurrent
// use.
type KeyRateLimit struct {
	mu        sync.Mutex
	perSecond float64
	burst     int
	buckets   map[uint64]*RateLimit
	sweep     int // calls until the full buckets are forgotten
}

// MaxKeys is how many keys are remembered at most, about 35 MB.
const MaxKeys = 100_000

var keySeed = maphash.MakeSeed()

// NewKeyRateLimit allows each key perSecond calls a second on average and burst at once. math.Inf(1) per second lets all pass.
func NewKeyRateLimit(perSecond float64, burst int) (*KeyRateLimit, error) {
	l := &KeyRateLimit{buckets: map[uint64]*RateLimit{}}
	return l, l.Set(perSecond, burst)
}

// Set changes the limit, at once also for messages that wait.
func (l *KeyRateLimit) Set(perSecond float64, burst int) error {
	if err := checkRate(perSecond, burst); err != nil {
		return err
	}
	l.mu.Lock()
	buckets := l.set(perSecond, burst)
	l.mu.Unlock()
	callAll(buckets)
	return nil
}

// callAll calls those whose turn it is now.
func callAll(buckets []*RateLimit) {
	for _, b := range buckets {
		b.call()
	}
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
	next, err := changed(l.Kind(), l.settings(), settings)
	var buckets []*RateLimit
	if err == nil {
		buckets = l.set(next[settingPerSecond], int(next[settingBurst]))
	}
	l.mu.Unlock()
	callAll(buckets)
	return err
}

// set changes the limit of all keys that are remembered, which it returns. It needs l.mu.
func (l *KeyRateLimit) set(perSecond float64, burst int) []*RateLimit {
	l.perSecond, l.burst = perSecond, burst
	buckets := slices.Collect(maps.Values(l.buckets))
	for _, b := range buckets {
		b.reset(perSecond, burst)
	}
	return buckets
}

// Middleware defers what is early.
func (l *KeyRateLimit) Middleware(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		if m.Key == nil {
			return next(ctx, m)
		}
		name := message{m.Claim, m.Token}
		if b, wait := l.take(maphash.Bytes(keySeed, m.Key), name, time.Now()); wait > 0 {
			return consumer.Defer(wait, func(wake func() bool) { b.wait(name, wake) })
		}
		return next(ctx, m)
	}
}

// take takes a token of a key for a message whose turn it is, or says after how long it looks again if nobody calls it before,
// and where it may wait for that. Those of a key that wait are called one by one: each that looks for itself at each token would
// cost the square of their number.
func (l *KeyRateLimit) take(key uint64, m message, now time.Time) (b *RateLimit, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweep--; l.sweep < 0 {
		l.forgetFull(now)
	}
	if b = l.buckets[key]; b == nil {
		if len(l.buckets) >= MaxKeys {
			l.forgetHalf(now)
		}
		b = newRateLimit(l.perSecond, l.burst)
		l.buckets[key] = b
	}
	return b, b.take(m, now)
}

// forgetFull forgets the keys that have all their tokens: a new bucket has them, too.
func (l *KeyRateLimit) forgetFull(now time.Time) {
	for key, b := range l.buckets {
		if b.saved(now) >= float64(l.burst) {
			delete(l.buckets, key)
		}
	}
	l.sweep = max(1024, len(l.buckets))
}

// forgetHalf forgets the half of the keys that have most of their tokens. What waits there is called in its turn, and then counts
// as of a new key.
func (l *KeyRateLimit) forgetHalf(now time.Time) {
	type saved struct {
		key    uint64
		tokens float64
	}
	all := make([]saved, 0, len(l.buckets))
	for key, b := range l.buckets {
		all = append(all, saved{key, b.saved(now)})
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
