package ledger

import (
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"slices"
	"sync"
)

// A Clock stamps the begins and ends of handler runs in other processes, which report them over a socket and wait for the stamp.
// So what one process did because of what another did has the later stamp, and no process's own clock has a say. The stamps count
// from 1. Safe for concurrent use.
type Clock struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu      sync.Mutex
	now     int64
	runs    []Run
	letters []Letter
	conns   map[net.Conn]bool
	closed  bool
}

// StartClock listens on a Unix socket at path.
func StartClock(path string) (*Clock, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("starting the clock: %w", err)
	}
	c := &Clock{listener: l, conns: map[net.Conn]bool{}}
	server := rpc.NewServer()
	if err := server.RegisterName("Clock", &stamps{c}); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the clock: %w", err), l.Close())
	}
	c.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			if c.keep(conn) {
				c.serving.Go(func() { server.ServeConn(conn); c.drop(conn) })
			}
		}
	})
	return c, nil
}

// Close ends all connections.
func (c *Clock) Close() {
	c.mu.Lock()
	c.closed = true
	for conn := range c.conns {
		_ = conn.Close()
	}
	c.mu.Unlock()
	_ = c.listener.Close()
	c.serving.Wait()
}

// Stamped is what was reported so far.
func (c *Clock) Stamped() ([]Run, []Letter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.runs), slices.Clone(c.letters)
}

func (c *Clock) keep(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
		return false
	}
	c.conns[conn] = true
	return true
}

func (c *Clock) drop(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn)
	_ = conn.Close()
}

// stamp is the next one. It needs c.mu.
func (c *Clock) stamp() int64 {
	c.now++
	return c.now
}

// stamps are the calls that a Reporter makes.
type stamps struct{ c *Clock }

// RunEnd says how a run ended.
type RunEnd struct {
	Run     int
	Outcome Outcome
}

// Begin stamps the begin of a run, and returns its number.
func (s *stamps) Begin(r Run, run *int) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	r.Begin, r.End, r.Outcome = s.c.stamp(), 0, Running
	*run = len(s.c.runs)
	s.c.runs = append(s.c.runs, r)
	return nil
}

// End stamps the end of a run.
func (s *stamps) End(e RunEnd, _ *bool) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if e.Run < 0 || e.Run >= len(s.c.runs) || s.c.runs[e.Run].Outcome != Running {
		return fmt.Errorf("run %d is not under way", e.Run)
	}
	r := &s.c.runs[e.Run]
	r.End, r.Outcome = s.c.stamp(), e.Outcome
	return nil
}

// Letter stamps a dead letter that was confirmed.
func (s *stamps) Letter(l Letter, _ *bool) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	l.At = s.c.stamp()
	s.c.letters = append(s.c.letters, l)
	return nil
}

// A Reporter reports to a Clock in another process. Its methods return when the stamp is taken. Safe for concurrent use.
type Reporter struct {
	client *rpc.Client
	pid    int
}

// NewReporter connects with the clock at path.
func NewReporter(path string) (*Reporter, error) {
	client, err := rpc.Dial("unix", path)
	if err != nil {
		return nil, fmt.Errorf("reaching the clock: %w", err)
	}
	return &Reporter{client, os.Getpid()}, nil
}

// For reports on behalf of another process.
func (r *Reporter) For(pid int) *Reporter { return &Reporter{r.client, pid} }

// Begin is a handler's first act, for the message of number id that is stored at seq. It returns the run's number.
func (r *Reporter) Begin(id, seq int64) (run int, err error) {
	err = r.client.Call("Clock.Begin", Run{ID: id, Seq: seq, Pid: r.pid}, &run)
	return run, err
}

// End is a handler's last act.
func (r *Reporter) End(run int, how Outcome) error {
	return r.client.Call("Clock.End", RunEnd{run, how}, new(bool))
}

// Letter says that the dead letter of the message at seq was confirmed.
func (r *Reporter) Letter(seq int64) error {
	return r.client.Call("Clock.Letter", Letter{Seq: seq, Pid: r.pid}, new(bool))
}

// Close ends the connection.
func (r *Reporter) Close() error { return r.client.Close() }
