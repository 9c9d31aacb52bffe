package deadletters

import (
	"context"
	"errors"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// skew is how far the broker's clock may be behind that of the process which wrote the journal.
const skew = 5 * time.Minute

// resolve finds out what became of the letters that were on their way when a replay was stopped: it looks for their ids in the
// topics that they were going to. What is there was replayed. What is not, in a topic that keeps what it is given, was not, and
// is a waiting letter again. Of the others it is not known; they are replayed again, and named.
func (r *replay) resolve(ctx context.Context) error {
	open, err := r.uncertain(ctx)
	if len(open) == 0 || err != nil {
		return err
	}
	by := map[string]*search{}
	for _, p := range open {
		k := r.known.of(p)
		if k.open.handled { // whether a handler has run nobody can tell
			continue
		}
		s := by[k.open.to]
		if s == nil {
			s = &search{to: k.open.to, since: k.open.at, ids: map[string]broker.Place{}}
			by[k.open.to] = s
		}
		if k.open.at.Before(s.since) {
			s.since = k.open.at
		}
		s.ids[replayID(r.l.cfg.Topic, r.l.log, p, k.open.suffix)] = p
	}
	if len(by) == 0 {
		return nil
	}
	// How old their requests are only the clock knows that wrote the journal. By ours they are as old as what we have read.
	if err := sleep(ctx, r.l.cfg.Settle); err != nil {
		return err
	}
	for _, s := range by {
		if err := r.search(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// maxUncertain is of how many letters it is found out at once what became of them: more than replays that are killed leave, one
// batch each. The others are replayed, and named as perhaps there twice.
const maxUncertain = 4 * maxSpan

// uncertain are the letters that are there and of which it is not known whether they were published: the journal may name others.
func (r *replay) uncertain(ctx context.Context) (ps []broker.Place, err error) {
	if !r.known.uncertain() {
		return nil, nil
	}
	err = r.l.scan(ctx, r.known, Filter{State: Uncertain}, func(x *Letter) error {
		if len(ps) == maxUncertain {
			return broker.ErrStopScan
		}
		ps = append(ps, x.Place)
		return nil
	})
	return ps, err
}

// A search is for messages of a topic by their ids.
type search struct {
	to    string
	since time.Time
	ids   map[string]broker.Place
}

func (r *replay) search(ctx context.Context, s *search) error {
	var found, absent []broker.Place
	done, err := r.l.cfg.Store.Scan(ctx, broker.Scan{Topic: s.to, Since: s.since.Add(-skew)}, func(m *broker.Message) error {
		id := storedID(m)
		if p, ok := s.ids[id]; ok {
			found = append(found, p)
			delete(s.ids, id)
		}
		if len(s.ids) == 0 {
			return broker.ErrStopScan
		}
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, broker.ErrNoTopic): // and what was there is gone with it
		done.Whole = false
	case err != nil: // it may be a topic that we may write to and not read
		done.Whole = false
	}
	if done.Whole {
		for _, p := range s.ids {
			absent = append(absent, p)
		}
	}
	r.sum.Found, r.sum.Absent = append(r.sum.Found, found...), append(r.sum.Absent, absent...)
	for _, p := range absent {
		if r.known.of(p).open.edited {
			r.sum.LostEdits = append(r.sum.LostEdits, p)
		}
	}
	return errors.Join(r.conclude(ctx, stepDone, s.to, found), r.conclude(ctx, stepUndone, s.to, absent))
}

// conclude writes down what was found out of letters that other runs began.
func (r *replay) conclude(ctx context.Context, step, to string, places []broker.Place) error {
	by := map[string][]broker.Place{}
	for _, p := range places {
		of := r.known.of(p).open.run
		by[of] = append(by[of], p)
	}
	for of, places := range by {
		began := r.known.of(places[0]).open
		rec := record{Step: step, Of: of, Letters: map[string]spans{to: spansOf(places)}, Edited: began.edited, Suffix: began.suffix}
		if err := r.j.append(ctx, rec); err != nil {
			return err
		}
		rec.Run, rec.Log, rec.At = r.j.run, r.j.log, time.Now()
		if err := r.known.add(rec); err != nil {
			return err
		}
	}
	return nil
}

// storedID is the id by which a stored message is told: JetStream has a header of its own for it.
func storedID(m *broker.Message) string {
	if v, ok := m.Headers.Get("Nats-Msg-Id"); ok {
		return string(v)
	}
	v, _ := m.Headers.Get(broker.HeaderID)
	return string(v)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
