package middleware

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"golang.org/x/time/rate"
)

// A RateLimit lets calls begin at a rate at most; its Middleware is a consumer.Middleware. One RateLimit may wrap several
// handlers, which share it. A message that is early waits for its turn without a worker (see consumer.Defer), so that a limited
// handler cannot take every worker from the others. The one that has waited longest is next, and one that went back to the broker
// keeps none of the others waiting. It counts in this process, so that several call so many times as often, or, with ShareBy,
// over all of them. Safe for concurrent use.
type RateLimit struct {
	mu        sync.Mutex
	perSecond float64
	burst     int
	sharing   sharing
	share     broker.Share  // that the limiter goes by
	limiter   *rate.Limiter // has the tokens; who begins takes one
	line      turns
	timer     *time.Timer // calls the next of the line; nil: nobody waited so far
}

// Kind is rate_limit, its name in a configuration file.
func (l *RateLimit) Kind() string { return "rate_limit" }

// ShareBy makes the limit one of all processes together: this one has the part of it that its sources say it has of the work,
// and follows when that changes. So it has of burst, rounded down, but one call at least. Give it all sources of the consumer,
// that of retry topics too, before the consumer runs; of two sources of one group in a process each counts the group's
// partitions, so the part is too small. It fails where one of them cannot tell, and then nothing is changed.
func (l *RateLimit) ShareBy(sources ...broker.Sharer) error {
	by, err := shareBy(sources)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sharing = by
	l.follow(time.Now())
	return nil
}

// Share is which part of the limit this process has now, 0 to 1, where it is shared.
func (l *RateLimit) Share() (part float64, shared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sharing.at(time.Now()).Part(), l.sharing.shared()
}

// Settings are per_second and burst, as last set.
func (l *RateLimit) Settings() map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settings()
}

// settings needs l.mu.
func (l *RateLimit) settings() map[string]float64 {
	return map[string]float64{settingPerSecond: l.perSecond, settingBurst: float64(l.burst)}
}

// Change is Set for the settings that are named; the others stay. The error names each that is wrong, and then nothing is
// changed. Other than with Set, per_second is above 0 and has a bound.
func (l *RateLimit) Change(settings map[string]float64) error {
	defer l.call()
	l.mu.Lock()
	defer l.mu.Unlock()
	next, err := changed(l.Kind(), l.settings(), settings)
	if err != nil {
		return err
	}
	l.set(next[settingPerSecond], int(next[settingBurst]))
	return nil
}

// NewRateLimit allows perSecond calls a second on average and burst at once. 0 per second holds all calls until Set; math.Inf(1)
// lets all pass.
func NewRateLimit(perSecond float64, burst int) (*RateLimit, error) {
	if err := checkRate(perSecond, burst); err != nil {
		return nil, err
	}
	return newRateLimit(perSecond, burst), nil
}

func newRateLimit(perSecond float64, burst int) *RateLimit {
	return &RateLimit{
		perSecond: perSecond, burst: burst, share: broker.Share{Held: 1, All: 1}, limiter: newLimiter(perSecond, burst),
	}
}

func checkRate(perSecond float64, burst int) error {
	if math.IsNaN(perSecond) || perSecond < 0 {
		return fmt.Errorf("middleware: rate limit: %v per second, want at least 0", perSecond)
	}
	if burst < 1 {
		return fmt.Errorf("middleware: rate limit: burst is %d, want at least 1", burst)
	}
	return nil
}

func newLimiter(perSecond float64, burst int) *rate.Limiter {
	return rate.NewLimiter(limitOf(perSecond), burst)
}

// limitOf is a rate as package rate has it: with infinity itself it would count in NaN, and limit nothing ever after.
func limitOf(perSecond float64) rate.Limit {
	if math.IsInf(perSecond, 1) {
		return rate.Inf
	}
	return rate.Limit(perSecond)
}

// Set changes the limit, at once also for messages that wait. What is saved up is kept, as far as the new burst has room for it.
func (l *RateLimit) Set(perSecond float64, burst int) error {
	if err := checkRate(perSecond, burst); err != nil {
		return err
	}
	l.reset(perSecond, burst)
	l.call()
	return nil
}

// reset changes the limit, and calls nobody.
func (l *RateLimit) reset(perSecond float64, burst int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(perSecond, burst)
}

// saved is how many tokens there are; below zero, as many are missing. Those that wait count as if they had taken theirs.
func (l *RateLimit) saved(now time.Time) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limiter.TokensAt(now) - float64(l.line.len())
}

// set needs l.mu.
func (l *RateLimit) set(perSecond float64, burst int) {
	l.perSecond, l.burst = perSecond, burst
	l.share = l.sharing.at(time.Now())
	l.apply()
}

// follow goes by the part that this process has now. It needs l.mu.
func (l *RateLimit) follow(now time.Time) {
	if share := l.sharing.at(now); share != l.share {
		l.share = share
		l.apply()
	}
}

// apply needs l.mu.
func (l *RateLimit) apply() {
	perSecond, burst, now := 0.0, max(1, portion(l.burst, l.share)), time.Now()
	if part := l.share.Part(); part > 0 { // infinity times nothing is no number
		perSecond = l.perSecond * part
	}
	next := newLimiter(perSecond, burst)
	// A limiter begins full: take out what is not saved up. The part of a token that has grown since the last one, which messages
	// that wait (tokens below zero) count on, is kept by taking it out that much earlier; or they would starve while Set is called
	// often.
	tokens := l.limiter.TokensAt(now)
	whole := math.Floor(tokens)
	if rest := tokens - whole; perSecond > 0 {
		now = now.Add(-time.Duration(rest / perSecond * float64(time.Second)))
	}
	next.AllowN(now, burst-min(max(0, int(whole)), burst))
	l.limiter = next
}

// Middleware defers what is early.
func (l *RateLimit) Middleware(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		name := message{m.Claim, m.Token}
		if wait := l.take(name, time.Now()); wait > 0 {
			return consumer.Defer(wait, func(wake func() bool) { l.wait(name, wake) })
		}
		return next(ctx, m)
	}
}

// longestWait is how long a message waits at most until it looks again, for the limit may be another by then.
const longestWait = 10 * time.Second

// take takes a token for a message whose turn it is, or says after how long it looks again if nobody calls it before.
func (l *RateLimit) take(m message, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.arm(now) // its token is not set aside any more
	l.follow(now)
	tokens := l.line.ahead(m) + 1
	if l.until(tokens, now) <= 0 && l.limiter.AllowN(now, 1) {
		l.line.forget(m)
		return 0
	}
	return min(l.until(tokens, now)+time.Second, longestWait)
}

// until is how long until there are so many tokens if nobody takes one, and as if the burst had room for them. It needs l.mu.
func (l *RateLimit) until(tokens int, now time.Time) time.Duration {
	missing, perSecond := float64(tokens)-l.limiter.TokensAt(now), float64(l.limiter.Limit())
	switch {
	case l.share.Part() == 0, perSecond == 0: // what is saved up does not count
		return time.Hour
	case l.limiter.Limit() == rate.Inf || missing <= 0:
		return 0
	case missing/perSecond > time.Hour.Seconds():
		return time.Hour
	}
	return time.Duration(missing/perSecond*float64(time.Second)) + time.Nanosecond
}

// wait has a message wait for its turn. wake is that of consumer.Defer.
func (l *RateLimit) wait(m message, wake func() bool) {
	l.mu.Lock()
	l.line.wait(m, wake, time.Now())
	l.mu.Unlock()
	l.call() // there may be a token since it was refused one
}

// call calls as many out of the line as there are tokens, beyond those that are set aside for who was called before.
func (l *RateLimit) call() {
	for {
		l.mu.Lock()
		now := time.Now()
		wait, some := l.next(now)
		if !some || wait > 0 {
			l.arm(now)
			l.mu.Unlock()
			return
		}
		t, wake := l.line.call(now)
		l.mu.Unlock()
		if !wake() {
			l.mu.Lock()
			l.line.miss(t)
			l.mu.Unlock()
		}
	}
}

// next is how long until the first of the line is to be called, if there is one. It needs l.mu.
func (l *RateLimit) next(now time.Time) (wait time.Duration, some bool) {
	l.follow(now)
	if l.share.Part() == 0 { // nobody is called, and so nobody is found gone
		l.line.forgetGone(now)
	}
	l.line.missLate(now)
	if l.line.waiting.Len() == 0 {
		return 0, false
	}
	wait = l.until(l.line.called.Len()+1, now)
	if first := l.line.called.Front(); first != nil && wait > 0 { // it may not come, and with it the token that is for it
		wait = min(wait, first.Value.(*turn).since.Add(onItsWay).Sub(now))
	}
	if l.sharing.shared() {
		wait = min(wait, lookAtShare)
	}
	return wait, true
}

// arm has the next of the line called in its time. It needs l.mu.
func (l *RateLimit) arm(now time.Time) {
	wait, some := l.next(now)
	switch {
	case !some:
	case l.timer == nil:
		l.timer = time.AfterFunc(wait, l.call)
	default:
		l.timer.Reset(wait)
	}
}
