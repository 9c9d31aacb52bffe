package natsbroker

import (
	"errors"
	"fmt"
	"time"
)

// quiet follows when something was last heard, and tells requests that the server does not know any more, and a connection on
// which nothing comes back. It has no clock. Not safe for concurrent use.
type quiet struct {
	heard uint64 // answers to pulls
	since int64
	anew  int64  // when all was last asked for anew
	told  bool   // it was said that no answer comes, and none has come since
	reads uint64 // of the socket
	still int64  // since when there were none
}

// signs are what is heard of the server, now.
type signs struct {
	now      int64
	heard    uint64 // answers to pulls
	asked    bool   // there is something to answer
	idle     bool   // the requests are void, or there is no session: silenceKind says nothing
	standsBy bool   // another process is pinned: a server that is busy with that one sends no heartbeats to others
	contact  int64  // when the server last answered a PING
	ackWait  int64
	crowded  int // see pulls
}

// A silenceKind is what it means that nothing is heard.
type silenceKind int

const (
	notSilent   silenceKind = iota
	asideSilent             // ask anew
	pullSilent              // ask anew, and tell
	noAnswer                // the same: not even PINGs are answered
	silenceOver             // tell that it is
)

// look says what the silence means, and for how long there was no answer to a pull. What is asked anew has its time again.
func (q *quiet) look(s signs, patience int64) (silenceKind, time.Duration) {
	answered := s.heard != q.heard || !s.asked
	if answered {
		q.heard, q.since = s.heard, s.now
	}
	quiet, v := s.now-q.since, notSilent
	switch {
	case s.idle:
	case q.told && (answered || s.standsBy):
		q.told = false
		return silenceOver, 0
	case s.standsBy && quiet > patience:
		v = asideSilent
	case s.standsBy:
	case quiet > patience:
		v = pullSilent
	case s.now-s.contact > patience+s.ackWait:
		v = noAnswer
	}
	if s.idle || v != notSilent {
		q.since = s.now
	}
	q.told = q.told || v == pullSilent
	return v, time.Duration(quiet)
}

// revived takes that all is asked for anew, over a connection that answers, and says whether that is contact. It is not where
// pulls had no answer until now: a server that does not let them through, or has no room for them, answers all else.
func (q *quiet) revived(heard uint64, now int64) (contact bool) {
	q.heard, q.since, q.anew = heard, now, now
	return !q.told
}

// read takes how often the socket gave bytes.
func (q *quiet) read(reads uint64, now int64) {
	if reads != q.reads {
		q.reads, q.still = reads, now
	}
}

// halfOpen says whether the socket gives no byte though we asked: a new connection is found sooner than this one mends.
func (q *quiet) halfOpen(s signs, patience int64) bool {
	if s.now-q.still <= patience || s.now-s.contact <= patience+s.ackWait/3 {
		return false
	}
	q.still = s.now
	return true
}

// err is what is told of it. To a request with a heartbeat that it has no room for, the server says nothing at all.
func (v silenceKind) err(consumer string, quiet time.Duration, crowded int) error {
	switch {
	case v == pullSilent && crowded > 0:
		return fmt.Errorf("natsbroker: no heartbeat of consumer %s for %v, and as many requests wait there as its max_waiting of %d "+
			"allows: run fewer processes, or make it anew with more", consumer, quiet.Round(time.Millisecond), crowded)
	case v == pullSilent:
		return fmt.Errorf("natsbroker: no heartbeat of consumer %s for %v", consumer, quiet.Round(time.Millisecond))
	case v == noAnswer:
		return errors.New("natsbroker: the server does not answer")
	}
	return nil
}
