package kafkabroker

import (
	"errors"
	"fmt"
	"maps"
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
	dry   map[int32]*openEnded // brokers that give nothing, fetch after fetch, because of a quota
}

// errDry: all fetches come back empty, because of a quota. A fetch that comes while it is used up gets nothing at all, and what
// is asked for otherwise, heartbeats among it, may use up all that there is of it.
var errDry = errors.New("kafkabroker: nothing is read, for a broker holds us to a quota (consumer_byte_rate, request_percentage)")

// fetched takes note of whether a fetch came back empty because of a quota, and says when that has gone on for too long.
func (t *throttles) fetched(node int32, empty bool, now time.Time) (took time.Duration, long bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !empty {
		delete(t.dry, node)
		return 0, false
	}
	if t.dry == nil {
		t.dry = make(map[int32]*openEnded)
	}
	if t.dry[node] == nil {
		t.dry[node] = &openEnded{limit: unservedLimit}
	}
	return t.dry[node].seen(now)
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

// keep forgets all other brokers, but for those that take nothing yet.
func (t *throttles) keep(brokers map[int32]string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.until, func(node int32, until time.Time) bool { return brokers[node] == "" && !now.Before(until) })
	maps.DeleteFunc(t.dry, func(node int32, _ *openEnded) bool { return brokers[node] == "" })
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

// explain says for how long a quota lets things wait, where that is why they failed.
func (t *throttles) explain(err error) error {
	node, until := t.longest()
	if wait := time.Until(until); wait > 0 {
		return fmt.Errorf("%w: broker %d holds us to a quota (producer_byte_rate, request_percentage) for another %v", err, node,
			wait.Round(time.Second))
	}
	return err
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
