// Package faultproxy is a TCP proxy that breaks the network on purpose: per direction it can hold bytes back (a blackhole, with
// or without an end), add latency, limit the bandwidth and cut into slices; and it can reset connections, and refuse new ones.
package faultproxy

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A Direction is one way through the proxy.
type Direction int

const (
	// ToServer is what clients send.
	ToServer Direction = iota
	// ToClient is what the server sends.
	ToClient
)

// back is the other way.
func (d Direction) back() Direction { return ToClient - d }

// Shape is how bytes travel in one direction. The zero value is a good network.
type Shape struct {
	// Hold keeps everything back without closing anything: TCP fills up and waits, as behind a router that drops. That one end
	// closed or reset its connection is held, too. What was held travels on when Hold ends.
	Hold bool
	// Latency is added to each piece.
	Latency time.Duration
	// BytesPerSecond limits the rate; 0: no limit.
	BytesPerSecond int
	// Slice is the most bytes written at once; 0: no limit.
	Slice int
}

// A Proxy passes connections to a target. Its methods are safe for concurrent use.
type Proxy struct {
	target string
	l      net.Listener
	wg     sync.WaitGroup

	mu      sync.Mutex
	shape   [2]Shape
	changed chan struct{} // closed at each change of shape, and then replaced
	links   map[*link]struct{}
	least   time.Duration // how long new connections live
	most    time.Duration
	died    int
	refuse  bool
	closed  bool
}

type link struct {
	client, server *net.TCPConn
	gone           chan struct{}
	once           sync.Once
}

// New listens on a free port of the loopback and passes what comes to target (host:port). Close ends it.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("fault proxy: %w", err)
	}
	p := &Proxy{target: target, l: l, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where clients connect, host:port.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Set changes how bytes travel in a direction, for all connections, also those there are.
func (p *Proxy) Set(d Direction, s Shape) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shape[d] = s
	close(p.changed)
	p.changed = make(chan struct{})
}

// SetBoth is Set in both directions.
func (p *Proxy) SetBoth(s Shape) {
	p.Set(ToServer, s)
	p.Set(ToClient, s)
}

// Heal makes the network good again and accepts connections.
func (p *Proxy) Heal() {
	p.SetBoth(Shape{})
	p.Refuse(false)
	p.Live(0, 0)
}

// Refuse resets new connections (true), or accepts them again.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Reset resets all connections there are, with RST on both sides, and returns how many.
func (p *Proxy) Reset() int {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.reset()
	}
	return len(links)
}

// Live lets each new connection be reset after a random time between least and most; with 0 and 0 they live on.
func (p *Proxy) Live(least, most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.least, p.most = least, most
}

// Died is how many connections were reset because of Live.
func (p *Proxy) Died() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.died
}

// Links is how many connections pass now.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close resets everything and waits for the proxy's goroutines.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.l.Close()
	p.Reset()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		p.wg.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server.(*net.TCPConn), gone: make(chan struct{})}
	if !p.add(l) {
		l.reset()
		return
	}
	defer p.remove(l)
	if life := p.life(); life > 0 {
		end := time.AfterFunc(life, func() { p.die(l) })
		defer end.Stop()
	}
	var both sync.WaitGroup
	both.Go(func() { p.pass(l, ToServer, l.client, l.server) })
	both.Go(func() { p.pass(l, ToClient, l.server, l.client) })
	both.Wait()
	l.reset()
}

// add takes the link in, unless connections are refused.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

// life is how long a connection that begins now is to live; 0: on and on.
func (p *Proxy) life() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most <= p.least {
		return p.least
	}
	return p.least + rand.N(p.most-p.least)
}

// die resets a connection whose time is over, unless it ended before.
func (p *Proxy) die(l *link) {
	p.mu.Lock()
	_, there := p.links[l]
	if there {
		p.died++
	}
	p.mu.Unlock()
	if there {
		l.reset()
	}
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// pass copies one direction until one of the two ends closes, then closes the other's half, once nothing is held on its way.
func (p *Proxy) pass(l *link, d Direction, from, to *net.TCPConn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.send(l, d, to, buf[:n]) {
			_, _ = p.passable(l, d.back()) // to is gone, and from is not to learn it through a Hold
			l.reset()
			return
		}
		if err == nil {
			continue
		}
		if _, ok := p.passable(l, d); !ok {
			return
		}
		if !errors.Is(err, io.EOF) {
			l.reset()
		}
		_ = to.CloseWrite()
		return
	}
}

// send writes b under the shape as it is at each moment. false: the link is gone.
func (p *Proxy) send(l *link, d Direction, to *net.TCPConn, b []byte) bool {
	for first := true; len(b) > 0; first = false {
		s, ok := p.passable(l, d)
		if !ok || first && !l.wait(s.Latency) {
			return false
		}
		piece := b
		if s.Slice > 0 && len(piece) > s.Slice {
			piece = piece[:s.Slice]
		}
		if s.BytesPerSecond > 0 && !l.wait(time.Duration(len(piece))*time.Second/time.Duration(s.BytesPerSecond)) {
			return false
		}
		// What began to wait before a Hold waits in it too: a blackhole lets nothing slip through.
		if _, ok := p.passable(l, d); !ok {
			return false
		}
		if _, err := to.Write(piece); err != nil {
			return false
		}
		b = b[len(piece):]
	}
	return true
}

// passable waits until nothing is held in the direction, and returns its shape.
func (p *Proxy) passable(l *link, d Direction) (Shape, bool) {
	for {
		p.mu.Lock()
		s, changed := p.shape[d], p.changed
		p.mu.Unlock()
		if !s.Hold {
			return s, true
		}
		select {
		case <-changed:
		case <-l.gone:
			return s, false
		}
	}
}

// wait waits for d, or until the link is gone (false).
func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-l.gone:
		return false
	}
}

// reset closes both ends with RST, so that whoever waits on them learns it at once.
func (l *link) reset() {
	l.once.Do(func() {
		close(l.gone)
		_ = l.client.SetLinger(0)
		_ = l.server.SetLinger(0)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}
