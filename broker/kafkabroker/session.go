package kafkabroker

import (
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// A session is how long the group keeps our place without a sign of life from us. The coordinator counts it from when it heard
// us, but nobody knows how long its answer was on the way: so it counts here from when we asked. A session has no clock, no lock
// and no I/O.
type session struct {
	length time.Duration
	asked  time.Time // when what was answered last was asked; zero: nothing was answered yet
	failed error     // why what was asked last is no sign of life; nil: it is one, or nothing was asked
}

// answered takes note of an answer to what was asked at a time.
func (s *session) answered(asked time.Time) {
	s.heard(asked)
	s.failed = nil
}

// heard takes note that the coordinator knew us when it was asked. What was asked since then may have failed.
func (s *session) heard(asked time.Time) {
	if asked.After(s.asked) {
		s.asked = asked
	}
}

// ends is from when on the group may give what we have to others.
func (s session) ends() time.Time { return s.asked.Add(s.length) }

// lapsed says whether the group may have others in our place, as it may as well before it has answered for the first time.
func (s session) lapsed(now time.Time) bool { return !now.Before(s.ends()) }

// over says whether a session that had begun has ended.
func (s session) over(now time.Time) bool { return !s.asked.IsZero() && s.lapsed(now) }

// silent says whether a session has ended in which what was asked last got no answer. Where nothing was asked since, that is to
// be done first, for a process that stood still may have its place yet.
func (s session) silent(now time.Time) bool { return s.failed != nil && s.over(now) }

// withdrawn says whether a right was taken away that we had: it may be given back. Who never had it is refused for good.
func (s session) withdrawn(err error) bool {
	if s.asked.IsZero() {
		return false
	}
	switch codeOf(err) {
	case kafka.GroupAuthorizationFailed, kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed:
		return true
	}
	return false
}

// patience is how long to wait for an answer, which a request waits for at most so long as given. It lets one that gets no
// answer be sent again within the session, and waits for none beyond its end: then what we have is somebody else's.
func (s session) patience(now time.Time, request time.Duration) time.Duration {
	d := min(request, s.length/2)
	if left := s.ends().Sub(now); left > 0 {
		d = min(d, left)
	}
	return d
}
