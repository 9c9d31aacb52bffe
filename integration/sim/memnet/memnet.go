// Package memnet is a network in memory, with faults. It has no sockets and reads the time by package time alone, so servers and
// clients on it run inside testing/synctest, where a cut of a minute takes none.
//
// It is like TCP where that matters: bytes are written into a buffer and arrive in order; a cut keeps them back and tells nobody,
// and they arrive when it heals; nothing arrives twice. A write never waits: a client that writes under a lock would keep the
// clock of a bubble from going on.
package memnet

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A Direction is one of a connection, as the process sees it that dialed.
type Direction int

// The directions. Both is their sum.
const (
	Out Direction = 1 << iota
	In
	Both = Out | In
)

// A Net is one network. Safe for concurrent use.
type Net struct {
	mu        sync.Mutex
	port      int
	listeners map[string]*listener
	hosts     []*Host
}

// New makes a network that nobody is on.
func New() *Net { return &Net{listeners: make(map[string]*listener)} }

// Listen makes a listener at a new address, or at the one that is given if it names a port other than 0.
func (n *Net) Listen(_, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("memnet: listening at %q: %w", address, err)
	}
	if a.Port == 0 {
		n.port++
		a = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 20_000 + n.port}
	}
	if n.listeners[a.String()] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: a, Err: syscall.EADDRINUSE}
	}
	l := &listener{net: n, addr: a, dialed: make(chan net.Conn), done: make(chan struct{})}
	n.listeners[a.String()] = l
	return l, nil
}

// Break resets every connection to a server: it was killed, say.
func (n *Net) Break(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		h.breakAll(address)
	}
}

type listener struct {
	net    *Net
	addr   *net.TCPAddr
	dialed chan net.Conn
	once   sync.Once
	done   chan struct{}
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialed:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close frees the address. Connections stay, as TCP's do.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		delete(l.net.listeners, l.addr.String())
	})
	return nil
}

// A Host is where one process runs: what faults befall.
type Host struct {
	net *Net
	cfg HostConfig

	// All below is under net.mu, and so is what the Host's connections hold.
	dead  bool
	away  bool             // all servers are, as seen from here
	paths map[string]*path // by the server's address; "" is all
	delay time.Duration
	lose  int // answers that are lost with their connection
	conns map[*conn]bool
}

// A HostConfig says what the clients on a Host cannot bear in a bubble.
type HostConfig struct {
	// Greeted is for a client that dials and greets its server under a lock which others of its goroutines want: in a bubble
	// nothing may wait there for the clock. It is asked with all bytes that arrived on a connection whether the greeting is over.
	// Until then a cut refuses the dial, or resets the connection, and nothing is delayed. Defaults to nil: they wait.
	Greeted func(arrived []byte) bool
}

// path is the way from one Host to one server, or to all.
type path struct {
	cuts [2]int // how many cuts are under way, Out and In
	// changed is closed when something changes for those who wait to dial.
	changed chan struct{}
}

// Host adds a process to the network.
func (n *Net) Host(cfg HostConfig) *Host {
	h := &Host{net: n, cfg: cfg, paths: make(map[string]*path), conns: make(map[*conn]bool)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts = append(n.hosts, h)
	return h
}

// Dial connects, as net.Dialer's DialContext does. While the way there is cut it waits for ctx.
func (h *Host) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	for {
		l, ours, theirs, healed, err := h.connect(address)
		switch {
		case err != nil:
		case healed != nil:
			select {
			case <-healed:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		default:
			select {
			case l.dialed <- theirs:
				return ours, nil
			case <-l.done:
				err = syscall.ECONNREFUSED
			case <-ctx.Done():
				err = ctx.Err()
			}
			_ = ours.Close()
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", address, err)}
	}
}

// connect makes both ends of a connection; while the way is cut it makes none, and healed is closed when that may have changed.
func (h *Host) connect(address string) (l *listener, ours, theirs *conn, healed chan struct{}, err error) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	l, p := n.listeners[address], h.path(address)
	switch {
	case h.dead:
		return nil, nil, nil, nil, net.ErrClosed
	case h.isCut(Both, address) && h.cfg.Greeted != nil:
		return nil, nil, nil, nil, os.ErrDeadlineExceeded
	case h.isCut(Both, address):
		return nil, nil, nil, p.changed, nil
	case l == nil || h.away:
		return nil, nil, nil, nil, syscall.ECONNREFUSED
	}
	n.port++
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40_000 + n.port%20_000}
	link := &link{host: h, address: address, greeted: h.cfg.Greeted == nil}
	ours = &conn{link: link, dir: Out, from: from, to: l.addr}
	theirs = &conn{link: link, dir: In, from: l.addr, to: from}
	ours.peer, theirs.peer = theirs, ours
	h.conns[ours] = true
	return l, ours, theirs, nil, nil
}

// path is under net.mu.
func (h *Host) path(address string) *path {
	p := h.paths[address]
	if p == nil {
		p = &path{changed: make(chan struct{})}
		h.paths[address] = p
	}
	return p
}

// isCut says whether something is in the way to or from a server. It is under net.mu.
func (h *Host) isCut(d Direction, address string) bool {
	one, all := h.path(address).cuts, h.path("").cuts
	return d&Out != 0 && one[0]+all[0] > 0 || d&In != 0 && one[1]+all[1] > 0
}

// Cut keeps back what goes in a direction, until heal is called: to one server, or to all where address is empty. Nobody is told.
// Where several cuts are under way the last one that heals lets everything go on; what was kept back arrives then.
func (h *Host) Cut(d Direction, address string) (heal func()) {
	h.addCut(d, address, 1)
	return sync.OnceFunc(func() { h.addCut(d, address, -1) })
}

func (h *Host) addCut(d Direction, address string, by int) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	cuts := &h.path(address).cuts
	if d&Out != 0 {
		cuts[0] += by
	}
	if d&In != 0 {
		cuts[1] += by
	}
	for _, p := range h.paths {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	for c := range h.conns {
		if !c.link.greeted && h.isCut(Both, c.link.address) {
			c.tear()
			continue
		}
		c.stir()
		c.peer.stir()
	}
}

// Delay makes every byte that is written from now on arrive later by d, in either direction.
func (h *Host) Delay(d time.Duration) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.delay = d
}

// LoseAnswers breaks the connection at each of the next times writes of a server to this Host, so that what it did stays done and
// is not heard of. It replaces what was said before.
func (h *Host) LoseAnswers(times int) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.lose = times
}

// Break resets the connections to a server, or all where address is empty. They can be dialed again at once.
func (h *Host) Break(address string) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.breakAll(address)
}

func (h *Host) breakAll(address string) {
	for c := range h.conns {
		if address == "" || c.link.address == address {
			c.tear()
		}
	}
}

// Away makes every server refuse this Host, and resets its connections, until it is called with false.
func (h *Host) Away(away bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.away = away
	if away {
		h.breakAll("")
	}
}

// Kill is the end of the process. Its connections are closed, as its kernel does it; beyond a cut no server hears of that. It
// never connects again.
func (h *Host) Kill() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.dead = true
	for c := range h.conns {
		c.close()
	}
}

// What the ends of a connection are told.
var (
	errBroken = fmt.Errorf("memnet: %w", syscall.ECONNRESET)
	errGone   = fmt.Errorf("memnet: %w", syscall.EPIPE) // the peer has closed it
)
