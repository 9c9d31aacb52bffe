package admin

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// Bounds on what a client may take of us.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	maxBodyBytes      = 4 << 10
	shutdownTimeout   = 2 * time.Second
)

// A Server is the admin server. Make it with New, bind it with Listen, run it with Run, once.
type Server struct {
	cfg      Config
	names    []string // of the targets, sorted
	listener net.Listener
	http     *http.Server
	clients  *connections
	answers  *answers
	making   chan struct{}  // has one for each answer that is put together
	page     http.Handler   // nil: none
	refusals zerolog.Logger // for what was refused: sampled
	crowds   zerolog.Logger // sampled, too
}

// New checks cfg and makes a Server of it. The error names every field that is wrong.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, names: slices.Sorted(maps.Keys(cfg.Targets)), answers: newAnswers(mostHeld), making: make(chan struct{}, mostMaking),
		refusals: cfg.Logger.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Second}),
		crowds:   cfg.Logger.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute}),
	}
	if cfg.Page != nil {
		s.page = cfg.Page.Handler(PageSetup{Token: cfg.Token, Targets: cfg.Targets, Limits: cfg.Limits, Breakers: cfg.Breakers,
			Logger: cfg.Logger})
	}
	return s, nil
}

// Listen binds the address, so that a port that is taken is known before anything else starts. It does not wait.
func (s *Server) Listen(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("admin: listening: %w", err)
	}
	s.listener = l
	s.clients = &connections{most: s.cfg.MaxConnections, all: map[net.Conn]standing{}, crowded: s.crowded}
	s.http = &http.Server{
		Handler:           s.guard(s.routes(), onLoopback(l.Addr())),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         s.clients.changed,
		ErrorLog:          log.New(lines{s.cfg.Logger}, "", 0),
	}
	return nil
}

// Addr is the address that is bound; nil before Listen.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Run serves until ctx ends, then lets requests under way end for up to 2 s. It calls Listen where that was not done.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		if err := s.Listen(ctx); err != nil {
			return err
		}
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	defer s.runPage(ctx)()
	select {
	case err := <-served:
		return fmt.Errorf("admin: serving: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		_ = s.http.Close() // what is still open is cut
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: serving: %w", err)
	}
	return nil
}

// runPage runs the page until ctx ends, or what it returns is called, which waits for it.
func (s *Server) runPage(ctx context.Context) (end func()) {
	if s.cfg.Page == nil {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); s.cfg.Page.Run(ctx) }()
	return func() { stop(); <-ended }
}

// crowded tells, once a minute, that clients have more connections than there may be.
func (s *Server) crowded() {
	s.crowds.Warn().Str("event", "admin_crowded").Int("max_connections",
		s.cfg.MaxConnections).Msg("too many connections: the one that was idle longest is closed for each new one")
}

func onLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// lines writes what net/http complains of to the log.
type lines struct{ log zerolog.Logger }

func (l lines) Write(p []byte) (int, error) {
	l.log.Warn().Str("event", "admin_http").Msg(string(p))
	return len(p), nil
}
