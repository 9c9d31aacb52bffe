package admin

import "net/http"

// HTTP is the server within, after Listen.
func (s *Server) HTTP() *http.Server { return s.http }

// MostHeld is the bound on Held.
const MostHeld = mostHeld

// Held is how many bytes of answers, and how many of these, are on their way to clients.
func (s *Server) Held() (bytes, n int) {
	s.answers.mu.Lock()
	defer s.answers.mu.Unlock()
	return s.answers.held, len(s.answers.all)
}

// Idle is how many connections of clients the server knows to be idle: it learns that a moment after the client has its answer.
func (s *Server) Idle() (n int) {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	for _, c := range s.clients.all {
		if c.state == http.StateIdle {
			n++
		}
	}
	return n
}
