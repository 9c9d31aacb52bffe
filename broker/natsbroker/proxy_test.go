package natsbroker_test

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// A proxy stands between a source and its server and can break what goes through it.
type proxy struct {
	l      net.Listener
	target string

	mu    sync.Mutex
	cond  *sync.Cond
	stall [2]bool       // toServer, toClient: bytes wait
	down  bool          // new connections are refused, open ones are reset
	wait  time.Duration // before bytes go on to the server
	edit  func([]byte)  // what comes from the server; nil: it goes on as it is
	holds int           // bytes held now
	loses bool          // what goes to the server is lost
	lost  []byte        // what was
	done  bool
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

const (
	toServer = iota
	toClient
)

func startProxy(t testing.TB, port int) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, target: fmt.Sprintf("127.0.0.1:%d", port), conns: map[net.Conn]bool{}}
	p.cond = sync.NewCond(&p.mu)
	p.wg.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) url() string { return "nats://" + p.l.Addr().String() }

func (p *proxy) serve() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.link(c) })
	}
}

func (p *proxy) link(c net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	s, err := net.Dial("tcp", target)
	p.mu.Lock()
	if err != nil || p.down || p.done {
		p.mu.Unlock()
		reset(c)
		if err == nil {
			reset(s)
		}
		return
	}
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	p.wg.Go(func() { p.copy(s, c, toServer) })
	p.copy(c, s, toClient)
}

func reset(c net.Conn) {
	if tc, ok := c.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
	_ = c.Close()
}

// copy moves bytes, but holds them while their direction is stalled.
func (p *proxy) copy(to, from net.Conn, direction int) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		p.holds += n
		for p.stall[direction] && !p.done && p.conns[from] {
			p.cond.Wait()
		}
		p.holds -= n
		alive := p.conns[from] && !p.done
		wait, edit := p.wait, p.edit
		if p.loses && direction == toServer {
			p.lost = append(p.lost, buf[:n]...)
			n = 0
		}
		p.mu.Unlock()
		if direction == toClient && edit != nil {
			edit(buf[:n])
		}
		if direction == toServer && wait > 0 {
			time.Sleep(wait)
		}
		if !alive || err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// lead takes new connections to another server.
func (p *proxy) lead(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = fmt.Sprintf("127.0.0.1:%d", port)
}

// say writes to all clients in the server's name.
func (p *proxy) say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.LocalAddr().String() == p.l.Addr().String() {
			_, _ = c.Write([]byte(line + "\r\n"))
		}
	}
}

func (p *proxy) held() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holds > 0
}

// lose has what goes to the server be lost until the connection is dropped.
func (p *proxy) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loses = true
}

func (p *proxy) hasLost(what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.lost, []byte(what))
}

func (p *proxy) delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wait = d
}

// rewrite has what comes from the server edited in its place.
func (p *proxy) rewrite(edit func([]byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.edit = edit
}

// cut holds bytes in a direction until heal; the connection stays.
func (p *proxy) cut(directions ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range directions {
		p.stall[d] = true
	}
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stall, p.down = [2]bool{}, false
	p.cond.Broadcast()
}

// drop resets all connections; what was held in them is lost.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loses = false
	for c := range p.conns {
		reset(c)
		delete(p.conns, c)
	}
	p.cond.Broadcast()
}

// shut drops all connections and refuses new ones until heal.
func (p *proxy) shut() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.drop()
}

func (p *proxy) close() {
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	_ = p.l.Close()
	p.drop()
	p.wg.Wait()
}
