package natsbroker

import (
	"strings"
	"sync"
	"time"
)

// seldom counts what may happen for each message, and says when it is to be told: at once, and then once a minute at most. Not
// safe for concurrent use.
type seldom struct {
	n    int   // not told of
	told int64 // when it was last told, by the source's clock
}

const tellSeldom = int64(time.Minute)

// happened counts one more, and says how many are to be told now.
func (s *seldom) happened(now int64) (tell int) {
	s.n++
	if s.told != 0 && now-s.told < tellSeldom {
		return 0
	}
	tell = s.n
	s.n, s.told = 0, now
	return tell
}

// refusedRights are those that the server said we do not have, and when that was told: who asks, asks again. Safe for concurrent
// use.
type refusedRights struct {
	mu   sync.Mutex
	told map[string]time.Time
}

// mostRights bounds what is remembered.
const mostRights = 100

// tell says whether the lack of a right is to be told now: once a minute at most, and those to listen to something as one.
func (r *refusedRights) tell(err error, now time.Time) bool {
	what := denied(err)
	if strings.Contains(err.Error(), "for Subscription to") {
		what = "to listen"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.told[what]; ok && now.Sub(at) < time.Duration(tellSeldom) {
		return false
	}
	if r.told == nil || len(r.told) >= mostRights {
		r.told = make(map[string]time.Time)
	}
	r.told[what] = now
	return true
}
