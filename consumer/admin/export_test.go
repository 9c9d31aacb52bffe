package admin

import "net/http"

// HTTP is the server within, after Listen.
func (s *Server) HTTP() *http.Server { return s.http }
