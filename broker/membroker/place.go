package membroker

import (
	"errors"
	"time"

	"github.com/longshoremq/longshore/broker/kit"
)

// A place is the source's in its group: the member that the broker knows it as. It is the loop's, and before the loop begins
// Open's; m is guarded by Broker.mu.
type place struct {
	b          *Broker
	link       *link
	cfg        SourceConfig
	data, call kit.Bell // wakes Receive; wakes the loop
	m          *member
	beatAt     time.Time
	failing    bool // the last heartbeat failed
	rejoins    bool // the broker does not know us any more
}

// A refusal is an answer that another try would not change.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// open asks to become a member.
func (p *place) open() error {
	return p.link.exchange(func(time.Time) error {
		if err := p.b.faults.fail(OpOpen); err != nil {
			return &refusal{err}
		}
		if err := p.enter(); err != nil {
			return &refusal{err}
		}
		return nil
	})
}

// enter makes a member of the source; it runs at the broker. It leaves as the old one, which an answer that got lost may have
// made.
func (p *place) enter() error {
	if p.m != nil && p.m.known() {
		p.m.leave()
	}
	m, err := p.b.group(p.cfg.Group).join(p.cfg.Topics, p.data, p.call)
	if err != nil {
		return err
	}
	p.m = m
	return nil
}

// abandon takes back a join that Close overtook.
func (p *place) abandon() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.m != nil {
		p.m.leave()
	}
}

// beat sends a heartbeat, which extends what the source has, and returns what the broker has to say, at its time. It is of no use
// later than by.
func (p *place) beat(by time.Time, has []int64) (ns []notice, at time.Time, err error) {
	err = p.link.exchangeBy(by, func(now time.Time) (err error) {
		at = now
		ns, err = p.m.heartbeat(has, now)
		return err
	})
	return ns, at, err
}

// beaten says when the next heartbeat is due.
func (p *place) beaten(at time.Time) { p.failing, p.beatAt = false, at.Add(p.b.cfg.Lease/3) }

// failed says when the next try is due.
func (p *place) failed(now time.Time) { p.failing, p.beatAt = true, now.Add(retryEvery) }

// called lets the next heartbeat be sent at once, for the broker has something to say. Where it failed it is sent at the next
// try: else our joining would wake us again and again.
func (p *place) called() {
	if !p.failing {
		p.beatAt = time.Time{}
	}
}

// rejoin becomes a new member after the broker has forgotten the old one, or may have. contact is when it answered.
func (p *place) rejoin(now time.Time) (contact time.Time, err error) {
	err = p.link.exchange(func(now time.Time) error {
		contact = now
		return p.enter()
	})
	if err != nil {
		p.failed(now)
		return contact, err
	}
	p.rejoins, p.failing, p.beatAt = false, false, now
	return contact, nil
}
