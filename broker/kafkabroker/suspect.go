package kafkabroker

import (
	"math/rand/v2"
	"time"
)

// Where processes in a row ended above one offset, a message above it may be killing them (os.Exit, out of memory). With
// Config.CrashLimit what was unfinished there is run alone: nothing else of this source is in a handler meanwhile. Before such a
// message is handed out, a commit says which it is, and by which process; before anything else is, another one says that it is
// settled. So a process that finds a suspect of another one in what is committed knows that the other one ended while this
// message, and no other of its source, was in a handler, or just before or after that.

// A marking is how far the commit of a suspect is.
type marking int

const (
	unmarked marking = iota
	setting          // it is to be committed
	set              // it is committed; the message may go out
	running          // it is out
	clearing         // it is settled; that is to be committed
)

// A suspicion is a partition's.
type suspicion struct {
	careful int // so many more messages are run alone
	mark    marking
	killer  int64 // what ran alone when another process ended; -1: nothing
	crashes int32
}

// A solo sees to it that suspects of any partition run alone.
type solo struct {
	me      uint64 // names this process to others
	limit   int    // Config.CrashLimit
	wary    int    // partitions whose messages are run alone
	marked  *part  // the one of them that has a suspect
	backlog *backlog
	bells   *bells
}

// incarnation tells processes apart.
func incarnation() uint64 { return rand.Uint64() }

// inspect begins to run what a partition had unfinished alone, where its processes ended so often. No process had more messages
// out than most.
func (s *solo) inspect(p *part, pr progress, most int) {
	if s.limit == 0 || pr.starts < s.limit && pr.suspect == nil {
		return
	}
	p.careful, p.tr.wary = most, true
	s.wary++
	p.killer = -1
	if x := pr.suspect; x != nil && x.by != s.me { // of our own: the partition was lost meanwhile, and nobody has died
		p.killer, p.crashes = x.offset, int32(pr.starts)
	}
}

// relax ends that.
func (s *solo) relax(p *part) {
	if p.careful > 0 {
		p.careful, p.tr.wary = 0, false
		s.away()
		s.wary--
	}
}

// away has Receive look again when nothing of a careful partition is there any more: the others waited for it.
func (s *solo) away() {
	if s.wary > 0 {
		signal(s.bells.wake)
	}
}

// on says whether only careful partitions may hand out: one of them has something to. out is how many messages are out. ready
// says whether a partition may hand out as far as anything else goes.
func (s *solo) on(turns []*part, out int, now time.Time, ready func(*part) bool) bool {
	if p := s.marked; p != nil {
		// Held, paused, without a broker, or gone from the log meanwhile: the others need not wait for it.
		if out == 0 && p.mark != clearing && (!ready(p) || p.mark == set && p.lacking(now)) {
			s.unmark(p)
		}
		return true
	}
	if s.wary == 0 {
		return false
	}
	for _, p := range turns {
		if p.careful > 0 && p.cur != nil && ready(p) {
			return true
		}
	}
	return false
}

// mayGo says whether a partition may hand out now, where others or itself are to be alone.
func (s *solo) mayGo(p *part, alone bool, out int) bool {
	switch {
	case !alone:
		return p.careful == 0
	case out > 0 || s.marked != nil && s.marked != p:
		return false
	case p.careful == 0 && s.marked != p:
		return false
	}
	return p.mark == unmarked || p.mark == set || p.mark == clearing && p.careful > 0
}

// vet says whether a message may be handed out as far as suspicion goes. It may not before a commit says that it runs alone; it
// is fetched again then.
func (s *solo) vet(p *part, o int64) bool {
	if p.careful == 0 || !p.tr.wants(o) {
		return true
	}
	if p.mark == set && p.tr.suspect.offset == o {
		p.mark = running
		return true
	}
	p.tr.suspects(&suspect{offset: o, by: s.me})
	p.mark, s.marked = setting, p
	p.rewind(o)
	s.commit()
	signal(s.bells.kick)
	return false
}

// cleared follows the settle of the message that ran alone.
func (s *solo) cleared(p *part, acked bool) {
	if acked {
		if p.careful == 1 || p.tr.suspect.offset == p.killer {
			s.relax(p)
		} else {
			p.careful--
		}
	}
	s.unmark(p)
}

// unmark takes the suspect back.
func (s *solo) unmark(p *part) {
	p.tr.suspects(nil)
	p.mark = clearing
	s.commit()
}

// commit has the next commit made at once.
func (s *solo) commit() {
	s.backlog.waited = true
	signal(s.bells.flush)
}

// written follows the commit of a snapshot with that suspect, or none.
func (s *solo) written(p *part, x *suspect) {
	switch {
	case p.mark == setting && x != nil && x == p.tr.suspect:
		p.mark = set
	case p.mark == clearing && x == nil:
		p.mark = unmarked
		if s.marked == p {
			s.marked = nil
		}
	default:
		return
	}
	signal(s.bells.wake)
}

// refused follows a commit of a partition that its broker does not take, for a right to the topic is missing, or the topic is
// gone. Nothing of it can run before one is taken, and the others do not wait for that. Where it was to say that a message runs
// alone no longer, that one is blamed if this process dies before.
func (s *solo) refused(p *part) {
	if p.mark != setting && p.mark != clearing {
		return
	}
	p.tr.suspects(nil)
	p.mark = unmarked
	if s.marked == p {
		s.marked = nil
		signal(s.bells.wake)
	}
}

// forget forgets all that of a partition: its claim has ended, or no commit can say what runs alone.
func (s *solo) forget(p *part) {
	s.relax(p)
	p.mark, p.tr.suspect = unmarked, nil
	if s.marked == p {
		s.marked = nil
		signal(s.bells.wake)
	}
}
