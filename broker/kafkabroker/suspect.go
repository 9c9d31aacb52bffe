package kafkabroker

import (
	"math/rand/v2"
	"time"
)

// Where processes in a row ended above one offset, a message above it may be killing them (os.Exit, out of memory). With
// Config.CrashLimit what was unfinished there is run alone: nothing else of this source is in a handler meanwhile. Before such a
// message is handed out, a commit says which it is, and by which process; before anything else is, another one says that it is
// settled. So a process that finds a suspect of another one in what is committed knows that the other one ended while this
// message, and no other of its source, was in a handler.

// A marking is how far the commit of a suspect is.
type marking int

const (
	unmarked marking = iota
	setting          // it is to be committed
	set              // it is committed; the message may go out
	running          // it is out
	clearing         // it is settled; that is to be committed
)

// incarnation tells processes apart.
func incarnation() uint64 { return rand.Uint64() }

// inspect begins to run what a partition had unfinished alone, where its processes ended so often; it needs s.mu.
func (s *Source) inspect(p *part, pr progress) {
	limit := s.cfg.CrashLimit
	if limit == 0 || pr.starts < limit && pr.suspect == nil {
		return
	}
	p.careful, p.tr.wary = s.gate.Budget().Messages, true // no process had more of them out
	s.wary++
	p.killer = -1
	if x := pr.suspect; x != nil && x.by != s.me { // of our own: the partition was lost meanwhile, and nobody has died
		p.killer, p.crashes = x.offset, int32(pr.starts)
	}
}

// relax ends that; it needs s.mu.
func (p *part) relax() {
	if p.careful > 0 {
		p.careful, p.tr.wary = 0, false
		p.s.wary--
	}
}

// alone says whether only careful partitions may hand out: one of them has something to.
func (s *Source) alone(now time.Time) bool {
	if p := s.marked; p != nil {
		if s.gate.Out() == 0 && p.mark != clearing && !p.ready(now) { // held or paused: the others need not wait for it
			p.unmark()
		}
		return true
	}
	if s.wary == 0 {
		return false
	}
	for _, p := range s.turns {
		if p.careful > 0 && p.cur != nil && p.ready(now) {
			return true
		}
	}
	return false
}

// mayGo says whether a partition may hand out now, where others or itself are to be alone; it needs s.mu.
func (s *Source) mayGo(p *part, alone bool) bool {
	switch {
	case !alone:
		return p.careful == 0
	case s.gate.Out() > 0 || s.marked != nil && s.marked != p:
		return false
	case p.careful == 0 && s.marked != p:
		return false
	}
	return p.mark == unmarked || p.mark == set || p.mark == clearing && p.careful > 0
}

// vet says whether a message may be handed out as far as suspicion goes. It may not before a commit says that it runs alone; it
// is fetched again then.
func (p *part) vet(o int64) bool {
	if p.careful == 0 || !p.tr.wants(o) {
		return true
	}
	if p.mark == set && p.tr.suspect.offset == o {
		p.mark = running
		return true
	}
	p.tr.suspects(&suspect{offset: o, by: p.s.me})
	p.mark, p.s.marked = setting, p
	p.rewind(o)
	p.s.hurry = true
	signal(p.s.flush)
	signal(p.s.kick)
	return false
}

// cleared follows the settle of the message that ran alone; it needs s.mu.
func (p *part) cleared(acked bool) {
	if acked {
		if p.careful == 1 || p.tr.suspect.offset == p.killer {
			p.relax()
		} else {
			p.careful--
		}
	}
	p.unmark()
}

// unmark takes the suspect back.
func (p *part) unmark() {
	p.tr.suspects(nil)
	p.mark = clearing
	p.s.hurry = true
	signal(p.s.flush)
}

// written follows the commit of a snapshot; it needs s.mu.
func (p *part) written(x *suspect) {
	switch {
	case p.mark == setting && x != nil && x == p.tr.suspect:
		p.mark = set
	case p.mark == clearing && x == nil:
		p.mark = unmarked
		if p.s.marked == p {
			p.s.marked = nil
		}
	default:
		return
	}
	signal(p.s.wake)
}

// unsuspect forgets all that, for the claim has ended; it needs s.mu.
func (p *part) unsuspect() {
	p.relax()
	p.mark, p.tr.suspect = unmarked, nil
	if p.s.marked == p {
		p.s.marked = nil
		signal(p.s.wake)
	}
}
