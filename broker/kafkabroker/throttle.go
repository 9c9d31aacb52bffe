package kafkabroker

import (
	"errors"
	"sync"
	"time"
)

// A broker that holds a client to a quota answers at once, says for how long, and reads nothing more on that connection until
// then (KIP-219). What is sent on it meanwhile waits there, whatever it is: a heartbeat behind a fetch, the end of a transaction
// behind its outputs. So where that takes long the connection is closed, and what has a quota is not sent before it is over.

// mutedMost is for how long a connection is kept that the broker does not read from.
const mutedMost = time.Second

// errMuted closes a connection behind an answer that is there.
var errMuted = errors.New("the broker reads nothing more on this connection for a while")

// throttleMost bounds what a broker may ask for.
const throttleMost = time.Minute

// throttled reads it from an answer to what has a quota.
func (q *request) throttled() time.Duration {
	if q.key != keyFetch && q.key != keyProduce {
		return 0
	}
	r, err := q.read()
	if err != nil {
		return 0
	}
	if q.key == keyProduce {
		skipProduced(r)
	}
	d := time.Duration(r.i32()) * time.Millisecond
	return min(max(d, 0), throttleMost)
}

// throttles are until when brokers take nothing from us that has a quota. Safe for concurrent use.
type throttles struct {
	mu    sync.Mutex
	until map[int32]time.Time
}

// note takes what a broker has said.
func (t *throttles) note(node int32, d time.Duration) {
	if d == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = make(map[int32]time.Time)
	}
	t.until[node] = time.Now().Add(d)
}

// left is for how long a broker takes nothing yet.
func (t *throttles) left(node int32) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.until) == 0 { // mostly
		return 0
	}
	d := time.Until(t.until[node])
	if d <= 0 {
		delete(t.until, node)
	}
	return max(d, 0)
}

// longest is who takes nothing for longest, and until when; one that is over: all take something.
func (t *throttles) longest() (node int32, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, by := range t.until {
		if by.After(until) {
			node, until = of, by
		}
	}
	return node, until
}
