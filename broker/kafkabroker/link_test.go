package kafkabroker

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/longshoremq/longshore/broker/brokertest"
)

// A wire is the network of one test: all links of it can be cut at once.
type network struct {
	mu    sync.Mutex
	down  bool
	slow  time.Duration
	links []*link
	count map[int16]int64 // requests sent, by their key
	bad   map[int16]int   // how many of the next ones break their connection
	deaf  map[int16]int   // how many of the next ones break it when their answer comes
	late  map[int16]time.Duration
	ends  map[int16]int // where to note that the end of the transaction is lost that the next Produce is in: see loseEnd
}

// loseEnd has the end of the next transaction with outputs get lost, with or without being carried out, however often it is asked
// for, until foundEnd. Nor is a new producer id to be had meanwhile.
func (n *network) loseEnd(arrives bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf, n.bad = make(map[int16]int), make(map[int16]int)
	n.ends = n.bad
	if arrives {
		n.ends = n.deaf
	}
}

// lostEnd says whether that has happened. Transactions without outputs end before, and are not lost.
func (n *network) lostEnd() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := n.deaf[keyEndTxn] + n.bad[keyEndTxn]
	return 0 < left && left < 1<<30
}

func (n *network) foundEnd() {
	n.hearAll(keyEndTxn)
	n.breakAt(keyEndTxn, 0)
	n.breakAt(keyInitProducerID, 0)
}

// delay lets each request of a kind take so much longer.
func (n *network) delay(key int16, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.late == nil {
		n.late = make(map[int16]time.Duration)
	}
	n.late[key] = d
}

// breakAnswers lets the answers to the next requests of a kind get lost, with their connections.
func (n *network) breakAnswers(key int16, times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.deaf == nil {
		n.deaf = make(map[int16]int)
	}
	n.deaf[key] += times
}

// hearAll lets no answer of a kind get lost any more.
func (n *network) hearAll(key int16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.deaf, key)
}

// hears says whether the answer to a request comes through.
func (n *network) hears(b []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(b) < 6 {
		return true
	}
	key := int16(binary.BigEndian.Uint16(b[4:]))
	if n.deaf[key] == 0 {
		return true
	}
	n.deaf[key]--
	return false
}

// sent is how many requests of a kind were sent.
func (n *network) sent(key int16) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[key]
}

// breakAt lets the next requests of a kind break their connections; 0: none any more.
func (n *network) breakAt(key int16, times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bad == nil {
		n.bad = make(map[int16]int)
	}
	if n.bad[key] += times; times == 0 {
		n.bad[key] = 0
	}
}

// see notes a request, where b is one, and says what shall become of it.
func (n *network) see(b []byte) (slow time.Duration, broken bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(b) < 6 || int(binary.BigEndian.Uint32(b))+4 != len(b) {
		return n.slow, false
	}
	if n.count == nil {
		n.count = make(map[int16]int64)
	}
	key := int16(binary.BigEndian.Uint16(b[4:]))
	n.count[key]++
	if n.ends != nil && key == keyProduce {
		n.bad[keyInitProducerID], n.ends[keyEndTxn], n.ends = 1<<30, 1<<30, nil
	}
	broken = n.bad[key] > 0
	if broken {
		n.bad[key]--
	}
	if keepsMember[key] {
		return n.late[key], broken
	}
	return n.slow, broken
}

// keepsMember are the requests that setSlow leaves as they are: heartbeats, and what comes before one on a new connection, where
// a commit has the old one. All of that has half a session, and what is slow takes a quarter of one each time. A claim that is
// lost for that says nothing of settles.
var keepsMember = map[int16]bool{
	keyHeartbeat: true, keyConsumerGroupHeartbeat: true, keyAPIVersions: true, keyFindCoordinator: true,
}

func (n *network) link() *link {
	l := &link{n: n, conns: make(map[*linkConn]bool)}
	n.mu.Lock()
	n.links = append(n.links, l)
	n.mu.Unlock()
	return l
}

func (n *network) setDown(down bool) {
	n.mu.Lock()
	n.down = down
	links := n.links
	n.mu.Unlock()
	for _, l := range links {
		if down {
			l.reset()
		}
	}
}

// setSlow lets each request take so much longer, but for what keepsMember has.
func (n *network) setSlow(d time.Duration) {
	n.mu.Lock()
	n.slow = d
	n.mu.Unlock()
}

// A link is how one process reaches the brokers.
type link struct {
	n *network

	mu     sync.Mutex
	killed bool
	cut    [3]bool // by brokertest.Direction
	conns  map[*linkConn]bool
	peak   int // connections at a time
}

// most is how many connections there were at a time.
func (l *link) most() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peak
}

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if l.isDown() {
		return nil, errRefused
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	lc := &linkConn{Conn: c, l: l}
	l.mu.Lock()
	l.conns[lc] = true
	l.peak = max(l.peak, len(l.conns))
	l.mu.Unlock()
	if l.isDown() { // meanwhile: it may have been too late for reset to see it
		lc.Close()
		return nil, errRefused
	}
	return lc, nil
}

var errRefused = syscall.ECONNREFUSED

// isDown says whether nobody is to be reached.
func (l *link) isDown() bool {
	l.n.mu.Lock()
	down := l.n.down
	l.n.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return down || l.killed
}

func (l *link) reset() {
	l.mu.Lock()
	conns := l.conns
	l.conns = make(map[*linkConn]bool)
	l.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
}

func (l *link) kill() {
	l.mu.Lock()
	l.killed = true
	l.mu.Unlock()
	l.reset()
}

func (l *link) setCut(d brokertest.Direction, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d == brokertest.Both {
		l.cut[brokertest.ToBroker], l.cut[brokertest.FromBroker] = on, on
		return
	}
	l.cut[d] = on
}

func (l *link) isCut(d brokertest.Direction) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut[d]
}

// A linkConn holds bytes back while its link is cut, as a network does: they arrive after the cut, if the connection still is
// there then.
type linkConn struct {
	net.Conn
	l *link

	mu     sync.Mutex
	until  time.Time // the deadline
	closed bool
	deaf   bool // the next answer does not come through
}

func (c *linkConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.until = t
	c.mu.Unlock()
	return c.Conn.SetDeadline(t)
}

func (c *linkConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

func (c *linkConn) wait(d brokertest.Direction) error {
	for c.l.isCut(d) {
		c.mu.Lock()
		late, closed := !c.until.IsZero() && time.Now().After(c.until), c.closed
		c.mu.Unlock()
		if late {
			return os.ErrDeadlineExceeded
		}
		if closed {
			return net.ErrClosed
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (c *linkConn) Write(b []byte) (int, error) {
	slow, broken := c.l.n.see(b)
	if broken {
		c.Close()
		return 0, net.ErrClosed
	}
	if !c.l.n.hears(b) {
		c.mu.Lock()
		c.deaf = true
		c.mu.Unlock()
	}
	time.Sleep(slow)
	if err := c.wait(brokertest.ToBroker); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *linkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	deaf := c.deaf
	c.mu.Unlock()
	if deaf {
		c.Close()
		return 0, net.ErrClosed
	}
	if e := c.wait(brokertest.FromBroker); e != nil {
		return 0, e
	}
	return n, err
}
