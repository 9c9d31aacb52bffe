package sim

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// hooks are what a program gives a consumer to call, as badly as they may be: an observer that asks the consumer about itself and
// panics, and an Around that counts how often each call is told to have ended.
type hooks struct {
	p *process

	mu    sync.Mutex
	rnd   *rand.Rand
	calls int // that Around has begun
	open  int // those whose end was not told
}

// hook gives a consumer its hooks, where the settings say so.
func (p *process) hook(cfg *consumer.Config) {
	if !p.run.schedule.Settings.Hooks {
		return
	}
	p.hooks = &hooks{p: p, rnd: rand.New(rand.NewPCG(p.run.schedule.Seed, uint64(2000+p.no)))}
	cfg.Observers = append(cfg.Observers, p.hooks.observe)
	cfg.Around = p.hooks.around
}

// oneIn is true once in n times.
func (h *hooks) oneIn(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rnd.IntN(n) == 0
}

// observe asks, and panics. The consumer is there by the first event, which Run tells.
func (h *hooks) observe(e consumer.Event) {
	if h.oneIn(4) {
		c := h.p.c
		c.Stats()
		c.Claims()
		c.Calls(3)
		c.Parked(3)
		c.Oldest()
		c.LagByPartition()
		_ = c.Health(time.Minute)
	}
	if h.oneIn(10) {
		panic(fmt.Sprintf("told to panic at %s", e.Name()))
	}
}

// around begins a call: some of them are told to nobody.
func (h *hooks) around(ctx context.Context, ms []*consumer.Message) (context.Context, consumer.End) {
	if h.oneIn(3) {
		return ctx, nil
	}
	h.mu.Lock()
	h.calls++
	h.open++
	h.mu.Unlock()
	n, told := len(ms), false
	return context.WithValue(ctx, hooksKey{}, h), func(all []consumer.Outcome) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if told {
			h.p.run.book.find("%s: a call was told twice to have ended, with %v", h.p.name, all[0].Verdict)
			return
		}
		if len(all) != n {
			h.p.run.book.find("%s: a call of %d messages was told to have ended with %d", h.p.name, n, len(all))
		}
		told = true
		h.open--
	}
}

type hooksKey struct{}

// judge: each call that was begun was told to have ended.
func (h *hooks) judge() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open != 0 {
		h.p.run.book.find("%s: of %d calls %d were never told to have ended", h.p.name, h.calls, h.open)
	}
}

// quietly keeps the panics of hooks, which package consumer writes through package log, from the tests' output.
func quietly() (undo func()) {
	before := log.Writer()
	log.SetOutput(io.Discard)
	return func() { log.SetOutput(before) }
}

// waker says when a message that was put off is woken: never, or up to three times, before or after its time.
func (s Schedule) waker(message, nth int) func(wake func() bool) {
	if !s.Settings.Hooks {
		return nil
	}
	rnd := rand.New(rand.NewPCG(s.Seed, 1<<53|uint64(message)<<16|uint64(nth)))
	return func(wake func() bool) {
		for range rnd.IntN(4) {
			time.AfterFunc(time.Duration(rnd.Int64N(int64(600*time.Millisecond))), func() { wake() })
		}
	}
}
