package memnet

import (
	"io"
	"net"
	"os"
	"time"
)

// A link is a connection: what both of its ends share. Under net.mu.
type link struct {
	host    *Host
	address string // of the server
	broken  bool
	greeted bool
	arrived []byte // at the process, until greeted
}

// A conn is one end of a connection. What it writes goes into its peer's queue. Under net.mu but for what never changes.
type conn struct {
	link     *link
	peer     *conn
	dir      Direction // in which what it writes goes
	from, to net.Addr

	queue  []piece // to read here
	closed bool
	// deadlines of reads and writes.
	readBy, writeBy time.Time
	// changed is closed when a reader has to look again; nil while nobody waits.
	changed chan struct{}
}

// A piece is bytes, or the end of them, that arrive at some time.
type piece struct {
	bytes []byte
	end   bool
	at    time.Time
}

func (c *conn) LocalAddr() net.Addr  { return c.from }
func (c *conn) RemoteAddr() net.Addr { return c.to }

// Read waits for bytes, for the deadline, or for the end.
func (c *conn) Read(b []byte) (int, error) {
	n := c.link.host.net
	for {
		n.mu.Lock()
		got, wait, err := c.take(b)
		if got > 0 || err != nil || len(b) == 0 {
			n.mu.Unlock()
			return got, err
		}
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		n.mu.Unlock()
		if wait <= 0 {
			<-changed
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// take reads what is there; if nothing is, wait is until it has to look again without being stirred, 0: never.
func (c *conn) take(b []byte) (got int, wait time.Duration, err error) {
	now := time.Now()
	switch {
	case c.closed:
		return 0, 0, net.ErrClosed
	case c.link.broken:
		return 0, 0, errBroken
	case !c.readBy.IsZero() && !now.Before(c.readBy):
		return 0, 0, os.ErrDeadlineExceeded
	}
	if !c.readBy.IsZero() {
		wait = c.readBy.Sub(now)
	}
	if len(c.queue) == 0 || c.held() {
		return 0, wait, nil
	}
	first := &c.queue[0]
	if later := first.at.Sub(now); later > 0 {
		if wait == 0 || later < wait {
			wait = later
		}
		return 0, wait, nil
	}
	if first.end {
		return 0, 0, io.EOF
	}
	got = copy(b, first.bytes)
	c.arrived(first.bytes[:got])
	if first.bytes = first.bytes[got:]; len(first.bytes) == 0 {
		c.queue = c.queue[1:]
	}
	return got, 0, nil
}

// held says whether a cut keeps back what comes to c.
func (c *conn) held() bool { return c.link.host.isCut(c.peer.dir, c.link.address) }

// arrived looks for the end of the greeting.
func (c *conn) arrived(b []byte) {
	l := c.link
	if l.greeted || c.dir != Out {
		return
	}
	l.arrived = append(l.arrived, b...)
	if l.greeted = l.host.cfg.Greeted(l.arrived); l.greeted {
		l.arrived = nil
	}
}

// Write never waits.
func (c *conn) Write(b []byte) (int, error) {
	n := c.link.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.link.broken:
		return 0, errBroken
	case !c.writeBy.IsZero() && !time.Now().Before(c.writeBy):
		return 0, os.ErrDeadlineExceeded
	case c.peer.closed && !c.peer.held():
		return 0, errGone
	case len(b) == 0:
		return 0, nil
	}
	if h := c.link.host; c.dir == In && h.lose > 0 {
		h.lose--
		c.peer.tear()
		return len(b), nil
	}
	c.send(piece{bytes: append([]byte(nil), b...)})
	return len(b), nil
}

// send puts a piece on its way. What was sent before it arrives before it.
func (c *conn) send(p piece) {
	p.at = time.Now()
	if c.link.greeted {
		p.at = p.at.Add(c.link.host.delay)
	}
	q := c.peer.queue
	if len(q) > 0 && q[len(q)-1].at.After(p.at) {
		p.at = q[len(q)-1].at
	}
	c.peer.queue = append(q, p)
	c.peer.stir()
}

// Close sends the end. What the peer sends after that is not read.
func (c *conn) Close() error {
	n := c.link.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.close()
	return nil
}

func (c *conn) close() {
	if c.closed {
		return
	}
	c.closed = true
	c.send(piece{end: true})
	c.stir()
	if c.peer.closed {
		delete(c.link.host.conns, c)
		delete(c.link.host.conns, c.peer)
	}
}

// tear resets the connection; c is the end of the process that dialed.
func (c *conn) tear() {
	c.link.broken = true
	c.stir()
	c.peer.stir()
	delete(c.link.host.conns, c)
}

// stir makes a reader look again.
func (c *conn) stir() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.setDeadlines(&t, &t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(&t, nil) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }

func (c *conn) setDeadlines(read, write *time.Time) error {
	n := c.link.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if read != nil {
		c.readBy = *read
	}
	if write != nil {
		c.writeBy = *write
	}
	c.stir()
	return nil
}
