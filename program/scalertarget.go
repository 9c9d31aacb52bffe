package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/internal/replicas"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
)

// readingTimeout bounds one look at the broker and the processes.
const readingTimeout = 5 * time.Second

// A scalerTarget is a consumer whose processes are scaled: it is looked at again and again, and whoever asks gets what was seen
// last.
type scalerTarget struct {
	name    string
	views   []workView
	members *memberView // nil: nobody is asked
	every   time.Duration
	log     zerolog.Logger

	mu   sync.Mutex
	last sighting
	next chan struct{} // closed at the next sighting
}

// A sighting is what is known of a consumer at a moment.
type sighting struct {
	figures replicas.Figures
	err     error // then the figures are of before
	times   int
}

// scalerTargets are the consumers of a file.
func scalerTargets(doc *config.Document, processes []string, sample bool, every time.Duration,
	log zerolog.Logger) (all map[string]*scalerTarget, err error) {
	all = map[string]*scalerTarget{}
	for _, name := range slices.Sorted(maps.Keys(doc.File.Consumers)) {
		t := &scalerTarget{name: name, every: every, log: log.With().Str("consumer", name).Logger(), next: make(chan struct{})}
		if len(processes) > 0 {
			t.members = newMemberView(name, processes)
			t.members.sample = sample
		}
		all[name] = t
		if t.views, err = workViews(name, doc.File.Consumers[name], doc); err != nil {
			return all, fmt.Errorf("scaler: consumer %s: %w", name, err)
		}
	}
	return all, nil
}

func (t *scalerTarget) close() {
	for _, v := range t.views {
		v.close()
	}
	if t.members != nil {
		t.members.close()
	}
}

// run looks until ctx ends.
func (t *scalerTarget) run(ctx context.Context) {
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	tracker := &replicas.Tracker{}
	for {
		r, err := t.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			tracker.Add(r)
		}
		t.saw(tracker.Figures(), err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look asks the broker and the processes.
func (t *scalerTarget) look(ctx context.Context) (r replicas.Reading, err error) {
	ctx, cancel := context.WithTimeout(ctx, readingTimeout)
	defer cancel()
	r.At = time.Now()
	var members *replicas.Members
	var asking errgroup.Group
	if t.members != nil {
		asking.Go(func() (failed error) { members, failed = t.members.read(ctx); return failed })
	}
	bounded := true
	for i, v := range t.views {
		w, failed := v.read(ctx)
		err = errors.Join(err, failed)
		for _, p := range w.parts {
			p.Name = fmt.Sprintf("%d %s", i, p.Name) // on another cluster there may be the same names
			r.Parts = append(r.Parts, p)
		}
		r.Missing = r.Missing || w.missing
		r.Most += w.most
		bounded = bounded && (w.most > 0 || w.later)
	}
	if !bounded {
		r.Most = 0
	}
	err = errors.Join(err, asking.Wait())
	r.Members = members
	return r, err
}

// saw keeps what was seen, and tells whoever waits for it.
func (t *scalerTarget) saw(f replicas.Figures, err error) {
	t.mu.Lock()
	was := t.last
	t.last = sighting{f, err, was.times + 1}
	close(t.next)
	t.next = make(chan struct{})
	t.mu.Unlock()
	switch {
	case err != nil && (was.err == nil || was.times == 0):
		t.log.Warn().Str("event", "scaler_blind").Err(err).Msg("how many processes are needed is not known: nobody is told a number")
	case err == nil && was.err != nil:
		t.log.Info().Str("event", "scaler_sees").Msg("how many processes are needed is known again")
	}
	if was.figures.Hold != f.Hold {
		t.log.Info().Str("event", "scaler_hold").Int("hold", f.Hold).Int("processes", f.Members).Float64("settled_per_second",
			round(f.Out)).
			Msg("more processes bring no more; 0: that is over")
	}
}

// now is what was seen last, and what is closed at the next sighting.
func (t *scalerTarget) now() (sighting, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last, t.next
}

// unsure is why an answer that keeps the number is none: what it takes for the number is 1, for nobody knows how many there are.
func (t *scalerTarget) unsure(a replicas.Answer, f replicas.Figures) error {
	beside := t.members != nil && t.members.sample
	switch {
	case a.Reason == replicas.Paused && f.Paused && f.Members < 0:
		return errPaused
	case a.Reason == replicas.Unmeasured && beside:
		return errUnmeasured
	case a.Reason == replicas.Missing && beside:
		return errMissing
	}
	return nil
}

// errOpen is of a scaler that does not know how many processes there are, so that it cannot ask for as many.
var errOpen = errors.New("a circuit breaker is open: what more processes would do is not known")

// errLimited is the same.
var errLimited = errors.New("a limit that processes share is used up: how many there are is not known")

// errPaused is the same.
var errPaused = errors.New("a process was paused, so the number is to stay: how many there are is not known")

// errUnmeasured and errMissing are of a process that answers beside its consumers: there may be others.
var (
	errUnmeasured = errors.New("this process has handled too little to tell what one does, and how many there are is not known: " +
		"perReplica of the trigger says it")
	errMissing = errors.New("a durable is not there, and how many there are is not known")
)

// errTooEarly is of a scaler that has begun just now.
var errTooEarly = errors.New("not known yet: there was no second look at the broker")

// answer says what the consumer needs. It waits for the first sightings of a scaler that has begun just now, and no longer than
// ctx. An error says that it is unknown.
func (t *scalerTarget) answer(ctx context.Context, s replicas.Settings) (replicas.Answer, replicas.Figures, error) {
	for {
		last, next := t.now()
		switch f := last.figures; {
		case last.err != nil:
			return replicas.Answer{}, f, last.err
		case f.Open && f.Members < 0:
			return replicas.Answer{}, f, errOpen
		case f.Limited && f.Members < 0:
			return replicas.Answer{}, f, errLimited
		case f.Known || f.Missing:
			a := replicas.Need(f, s)
			if err := t.unsure(a, f); err != nil {
				return replicas.Answer{}, f, err
			}
			return a, f, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return replicas.Answer{}, last.figures, errTooEarly
		}
	}
}
