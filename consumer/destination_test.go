package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// places is a publisher that knows which topics there are.
type places struct {
	broker.Publisher
	mu      sync.Mutex
	there   map[string]bool
	away    error // what each look is answered with
	refuses error // to create
}

func (p *places) Find(_ context.Context, topic string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.away != nil:
		return p.away
	case p.there[topic]:
		return nil
	}
	return broker.ErrNoTopic
}

func (p *places) Create(_ context.Context, topic string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses == nil {
		p.there[topic] = true
	}
	return p.refuses
}

func (p *places) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func withPlaces(t *testing.T, create bool, p *places, then func(r *running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["partitioned"])
		p.Publisher = b.Publisher()
		if p.there == nil {
			p.there = map[string]bool{}
		}
		r := start(t, b, consumer.Config{
			Handler:    func(context.Context, *consumer.Message) error { return nil },
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead", Create: create},
		})
		time.Sleep(time.Minute)
		then(r)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// A dead-letter topic that is not there is told of once, soon after the start, though nothing failed yet, and is a concern until
// it is there.
func TestMissingDestination(t *testing.T) {
	p := &places{}
	withPlaces(t, false, p, func(r *running) {
		told := eventsOf[consumer.DestinationMissing](r.journal)
		if len(told) != 1 || told[0].Topic != "dead" || !errors.Is(told[0].Err, broker.ErrNoTopic) {
			t.Errorf("told %v, want once that dead is missing", told)
		}
		if c := r.Concerns(); len(c) != 1 || !strings.Contains(c[0], "dead") || !strings.Contains(c[0], "no such topic") || !r.Ready() {
			t.Errorf("concerns are %q, ready is %v", c, r.Ready())
		}
		p.set(func() { p.there["dead"] = true })
		time.Sleep(time.Minute)
		if c, found := r.Concerns(), eventsOf[consumer.DestinationFound](r.journal); len(c) != 0 || len(found) != 1 ||
			found[0].Created {
			t.Errorf("when it is there: concerns are %q, told %v", c, found)
		}
	})
}

// keepers is places of which some lose what waits there.
type keepers struct {
	*places
	least map[string]time.Duration // what is to wait there for so long, or longer, is lost
}

func (k keepers) Retains(_ context.Context, topic string, d time.Duration) error {
	if least, lossy := k.least[topic]; lossy && d >= least {
		return errors.New(topic + " loses it")
	}
	return nil
}

// wrapping is a Wrapper that forwards what broker.Destinations can, and no more.
type wrapping struct {
	*places
	in keepers
}

func (w wrapping) Unwrap() broker.Publisher { return w.in }

func (w wrapping) Prepare(_ context.Context, ms []broker.Outgoing) []broker.Outgoing { return ms }

// A topic that loses what has to wait there, dead letters or for the next attempt, is told of once, at the start, also where its
// publisher is wrapped. One that keeps it is no news.
func TestLossyDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["partitioned"])
		p := keepers{places: &places{Publisher: b.Publisher(), there: map[string]bool{"dead": true, "short": true, "long": true}},
			least: map[string]time.Duration{"dead": 0, "short": 2 * time.Minute, "long": time.Hour}}
		r := start(t, b, consumer.Config{
			Handler:    func(context.Context, *consumer.Message) error { return nil },
			DeadLetter: &consumer.DeadLetter{Publisher: wrapping{p.places, p}, Topic: "dead"},
			Retry: consumer.Retry{Topics: &consumer.RetryTopics{Publisher: p, Source: b.Source(membroker.SourceConfig{
				Topics: []string{"short", "long"}, Group: "retries"}),
				Steps: []consumer.RetryStep{{Topic: "short", Delay: time.Minute}, {Topic: "long", Delay: time.Hour}}}},
		})
		time.Sleep(time.Minute)
		var told []string
		for _, e := range eventsOf[consumer.DestinationLossy](r.journal) {
			told = append(told, e.Topic+": "+e.Err.Error())
		}
		if slices.Sort(told); !slices.Equal(told, []string{"dead: dead loses it", "long: long loses it"}) {
			t.Errorf("told %q", told)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// One that is there, or a broker that is away, is no news.
func TestDestinationThere(t *testing.T) {
	for name, p := range map[string]*places{"there": {there: map[string]bool{"dead": true}},
		"away": {away: errors.New("connection refused")}} {
		withPlaces(t, false, p, func(r *running) {
			if n := len(eventsOf[consumer.DestinationMissing](r.journal)) + len(eventsOf[consumer.DestinationFound](r.journal)); n != 0 ||
				len(r.Concerns()) != 0 {
				t.Errorf("%s: %d events, %q", name, n, r.Concerns())
			}
		})
	}
}

// With Create it is made, once; where it cannot be made that is told, and tried again.
func TestDestinationCreated(t *testing.T) {
	withPlaces(t, true, &places{}, func(r *running) {
		if found := eventsOf[consumer.DestinationFound](r.journal); len(found) != 1 || !found[0].Created || found[0].Topic != "dead" ||
			len(r.Concerns()) != 0 {
			t.Errorf("told %v, concerns are %q", found, r.Concerns())
		}
	})
	p := &places{refuses: errors.New("not authorized")}
	withPlaces(t, true, p, func(r *running) {
		if told := eventsOf[consumer.DestinationMissing](r.journal); len(told) != 1 || told[0].Err.Error() != "not authorized" ||
			len(r.Concerns()) != 1 {
			t.Errorf("told %v, concerns are %q", told, r.Concerns())
		}
		p.set(func() { p.refuses = nil })
		time.Sleep(time.Minute)
		if found := eventsOf[consumer.DestinationFound](r.journal); len(found) != 1 || !found[0].Created || len(r.Concerns()) != 0 {
			t.Errorf("when it may be made: told %v, concerns are %q", found, r.Concerns())
		}
	})
}

// Each topic that letters are led to is looked for, and made, once.
func TestDestinationsOfRoutes(t *testing.T) {
	for name, create := range map[string]bool{"missing": false, "created": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(kinds["partitioned"])
				p, made := &places{Publisher: b.Publisher(), there: map[string]bool{"dead": true}}, false
				r := start(t, b, consumer.Config{
					Handler: func(context.Context, *consumer.Message) error { return nil },
					DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead", Create: create, Routes: []consumer.LetterRoute{
						{Class: "decode", Topic: "unread"}, {Class: "panic", Topic: "panics"}, {Class: "goexit", Topic: "panics"}, {Class: "error",
							Topic: "dead"},
					}},
				})
				time.Sleep(time.Minute)
				missing, found := eventsOf[consumer.DestinationMissing](r.journal), eventsOf[consumer.DestinationFound](r.journal)
				p.set(func() { made = p.there["unread"] && p.there["panics"] })
				if create && (len(missing) != 0 || len(found) != 2 || !made || len(r.Concerns()) != 0) {
					t.Errorf("made %v, missing %v, concerns %q", found, missing, r.Concerns())
				}
				if !create && (len(missing) != 2 || len(found) != 0 || len(r.Concerns()) != 2 ||
					!strings.Contains(r.Concerns()[1], "unread")) {
					t.Errorf("found %v, missing %v, concerns %q", found, missing, r.Concerns())
				}
				if err := r.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Create needs a publisher that can.
func TestDestinationCannotBeCreated(t *testing.T) {
	b := membroker.New(kinds["partitioned"])
	_, err := consumer.New(consumer.Config{
		Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Handler: func(context.Context,
			*consumer.Message) error {
			return nil
		},
		DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead", Create: true},
	})
	if err == nil || !strings.Contains(err.Error(), "DeadLetter.Create") {
		t.Errorf("New: %v", err)
	}
}

// A deafPublisher looks for a topic until it is told to return, whatever its context says.
type deafPublisher struct {
	broker.Publisher
	found chan struct{}
}

func (p deafPublisher) Find(context.Context, string) error {
	<-p.found
	return nil
}

func (p deafPublisher) Create(context.Context, string) error { return nil }

// TestStopDoesNotWaitForALook: a publisher that looks for a topic does not return when its context ends. The consumer stops, and
// commits what it has handled.
func TestStopDoesNotWaitForALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["partitioned"])
		p := deafPublisher{b.Publisher(), make(chan struct{})}
		defer synctest.Wait()
		defer close(p.found)
		r := start(t, b, consumer.Config{
			Handler:    func(context.Context, *consumer.Message) error { return nil },
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
		})
		produce(t, b, 3)
		time.Sleep(time.Minute)
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- r.end() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Hour):
			t.Errorf("it has not stopped after %v", time.Since(began))
			p.found <- struct{}{}
			<-ended
		}
		wantUnsettled(t, b, 0)
	})
}
