package natsbroker

import (
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Peers are the processes that read one consumer, by what each says of itself (presence). Each has an equal share of the work,
// and all shares together are at most the whole, by three times that each process keeps to:
//
//   - one that is new is counted by the others at once, and has no share before it has heard itself for goneAfter;
//   - one that does not hear itself may be cut off, and has no share after silentAfter;
//   - the others count it until goneAfter, as it does them: it cannot take itself for the only one that is left.
//
// Only who is cut off again and again, each time just between two beats of the others, may have a larger part than it should, and
// who is on one side of servers that have lost each other.
//
// They decide, and do nothing. Not safe for concurrent use.
type peers struct {
	me    string
	heard map[string]time.Time // when each was heard last; me, too
	since time.Time            // from when on this process has been heard without a pause; zero: it is not
	crowd int                  // how many there were when it was heard last: all speak as seldom as so many do
}

const (
	// beatEvery is how often a process says that it is there, where they are few.
	beatEvery = time.Second
	// mostBeats is how many of these each process hears in a second at most, for all hear all.
	mostBeats = 10
	// A process is gone after a silence of goneAfter, and has no share when it has not heard itself for silentAfter: one beat may be
	// lost, and between the two is more than one.
	goneAfter, silentAfter = 4 * beatEvery, 5 * beatEvery / 2
	// mostPeers bounds what somebody else who may publish to the subject can have us keep.
	mostPeers = 10_000
)

func newPeers(me string) *peers { return &peers{me: me, heard: make(map[string]time.Time)} }

// every is how often each says that it is there.
func (p *peers) every() time.Duration { return p.slow(beatEvery) }

// slow is a time of few processes, for as many as there are.
func (p *peers) slow(d time.Duration) time.Duration {
	if n := time.Duration(max(p.crowd, len(p.heard))); n > mostBeats {
		return d * n / mostBeats
	}
	return d
}

// hears takes that a process said that it is there.
func (p *peers) hears(id string, now time.Time) {
	p.forget(now)
	if _, known := p.heard[id]; !known && len(p.heard) >= mostPeers && id != p.me {
		return
	}
	p.heard[id] = now
	if id != p.me {
		return
	}
	p.crowd = len(p.heard)
	if p.since.IsZero() {
		p.since = now
	}
}

// leaves takes that a process said that it goes.
func (p *peers) leaves(id string) {
	delete(p.heard, id)
	if id == p.me {
		p.since = time.Time{}
	}
}

// forget takes those for gone that have said nothing for long. Who does not hear itself forgets nobody: it hears nobody else
// either, and where shares of several sources are added up the others go by their number as it was.
func (p *peers) forget(now time.Time) {
	if now.Sub(p.heard[p.me]) >= p.slow(silentAfter) {
		p.since = time.Time{}
		return
	}
	silent := p.slow(goneAfter)
	for id, at := range p.heard {
		if now.Sub(at) >= silent {
			delete(p.heard, id)
		}
	}
}

// greets says whether this process is new to the others, or may be: who is greeted answers at once.
func (p *peers) greets(now time.Time) bool {
	p.forget(now)
	return p.since.IsZero()
}

// share is what this process has at a time.
func (p *peers) share(now time.Time) broker.Share {
	p.forget(now)
	s := broker.Share{All: len(p.heard)}
	if !p.since.IsZero() && now.Sub(p.since) >= p.slow(goneAfter) {
		s.Held = 1
	}
	return s
}

// What a process says: the word, a space, and its name.
const (
	wordHello = "hello" // and who is there?
	wordHere  = "here"
	wordGone  = "gone"
)

// longestName is how long the name of a process may be.
const longestName = 64

// said reads what a process says; false: it is none of that.
func said(text string) (word, id string, ok bool) {
	word, id, ok = strings.Cut(text, " ")
	switch word {
	case wordHello, wordHere, wordGone:
		if ok && id != "" && len(id) <= longestName {
			return word, id, true
		}
	}
	return "", "", false
}
