package natsbroker

import (
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
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

// complaints are what the server says again and again, of rights or room that we lack, and when that was told: who asks, asks
// again. Safe for concurrent use.
type complaints struct {
	mu   sync.Mutex
	told map[string]time.Time
}

// mostComplaints bounds what is remembered.
const mostComplaints = 100

// hold says whether an error is such a complaint that was told within a minute. All those about what we may listen to are one.
func (c *complaints) hold(err error, now time.Time) bool {
	what := denied(err)
	switch {
	case deafened(err):
		what = "to listen"
	case errors.Is(err, nats.ErrAuthorization):
		what = "to log in"
	case !errors.Is(err, nats.ErrPermissionViolation):
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.told[what]; ok && now.Sub(at) < time.Duration(tellSeldom) {
		return true
	}
	if c.told == nil || len(c.told) >= mostComplaints {
		c.told = make(map[string]time.Time)
	}
	c.told[what] = now
	return false
}
