package natsbroker

import "time"

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
