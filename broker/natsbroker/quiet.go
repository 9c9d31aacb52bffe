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
)

// look says what the silence means, and for how long there was no answer to a pull. What is asked anew has its time again.
func (q *quiet) look(s signs, patience int64) (silenceKind, time.Duration) {
	if s.heard != q.heard || !s.asked {
		q.heard, q.since = s.heard, s.now
	}
	quiet, v := s.now-q.since, notSilent
	switch {
	case s.idle:
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
	return v, time.Duration(quiet)
}

// revived says that all was asked for anew.
func (q *quiet) revived(heard uint64, now int64) { q.heard, q.since = heard, now }

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
