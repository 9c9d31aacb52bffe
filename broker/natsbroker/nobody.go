package natsbroker

// nobody follows that the server has nobody to take what we send to our consumer, while that is there. A server that ends says so
// for a moment, and so does a cluster that chooses a leader. It stays so where our account reaches the stream's by imports, of
// which one is missing, and where an account was taken away and given back while the server ran. Not safe for concurrent use.
type nobody struct {
	n     int // one after the other
	since int64
	told  seldom
}

// mostNobody is how often a server that is well may say so.
const mostNobody = 4

// said takes the server's word for it; over, that somebody took what we sent, or that the connection is another.
func (s *nobody) said(now int64) {
	if s.n++; s.n == 1 {
		s.since = now
	}
}

func (s *nobody) over() { s.n = 0 }

// tell says whether it has lasted for so long that it is to be told, and is now.
func (s *nobody) tell(now, least int64) bool {
	return s.n > mostNobody && now-s.since >= least && s.told.happened(now) > 0
}
