package admin

import "net/http"

// HTTP is the server within, after Listen.
func (s *Server) HTTP() *http.Server { return s.http }

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
