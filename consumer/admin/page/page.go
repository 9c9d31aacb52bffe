package page

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/rs/zerolog"
)

// Config says what is shown.
type Config struct {
	// HidePayloads keeps payloads, keys and headers of dead letters, and keys of what is in hand, from being shown, and letters from
	// being edited, also to those who have logged in; and the text of errors and the reasons of skips, which may have of a payload,
	// from all others.
	// Defaults to false: they are shown after the login, and errors to all.
	HidePayloads bool
}

// A Page is the web page of a process. Make it with New, give each consumer the observer that Watch returns, and the Page to
// admin.Config, which does the rest. Its methods are safe for concurrent use.
type Page struct {
	cfg    Config
	events *eventLog
	jobs   *jobs

	mu      sync.Mutex
	watched map[string]*watched
}

// New makes a Page. It shows what happens from now on.
func New(cfg Config) *Page {
	return &Page{cfg: cfg, events: newEventLog(), jobs: newJobs(), watched: map[string]*watched{}}
}

// Watch makes the observer of a consumer, for its Config, and says what else there is to be shown of it. name is that of
// admin.Config.Targets; a consumer that is not watched is shown without decisions, failures and events. Call it once for each,
// before admin.New.
func (p *Page) Watch(name string, s Sources) consumer.Observer {
	w := newWatched(name, s)
	p.mu.Lock()
	p.watched[name] = w
	p.mu.Unlock()
	tell := consumer.LogEvents(zerolog.New(p.events).With().Str("consumer", name).Logger())
	return func(e consumer.Event) {
		switch e.(type) {
		case consumer.Handled, consumer.Operated: // many, and nothing that the page lists
			return
		}
		w.diary.observe(e, time.Now())
		tell(e)
	}
}

// Handler is what admin.New asks for: all below /ui/. Those of the server's consumers that nobody watches are watched from now
// on, without what an observer would tell.
func (p *Page) Handler(s admin.PageSetup) http.Handler {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*watched
	for _, name := range slices.Sorted(maps.Keys(s.Targets)) {
		w := p.watched[name]
		if w == nil {
			w = newWatched(name, Sources{})
			p.watched[name] = w
		}
		w.serve(&served{s.Targets[name], s.Limits[name], s.Breakers[name]})
		all = append(all, w)
	}
	return newSite(p, s, all)
}

// Run keeps the histories until ctx ends, then stops the jobs: what is on its way to the broker is finished, for at most 2 s.
// Whatever is left goes on with the next replay.
func (p *Page) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		p.sample(time.Now())
		select {
		case <-ctx.Done():
			p.jobs.close(stopPatience)
			return
		case <-tick.C:
		}
	}
}

// stopPatience is for how long jobs are waited for at the end.
const stopPatience = 2 * time.Second

func (p *Page) sample(now time.Time) {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.watched))
	p.mu.Unlock()
	for _, w := range all {
		w.sample(now)
	}
}
