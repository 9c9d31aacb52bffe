package admin

import (
	"net"
	"net/http"
	"sync"
)

// connections are those of clients, at most so many. A new one is always let in: it may be a probe, which nobody can tell before
// it has spoken, and whose answer decides whether this process lives. Where there are too many, the one goes that is missed
// least: of those that are idle the one that was so longest, else of those that have not asked yet, else of those whose request
// is under way. So clients that fill all connections, by whatever means, take places from each other, and a probe needs its own
// for a millisecond.
type connections struct {
	most    int
	crowded func() // told when one had to go

	mu   sync.Mutex
	all  map[net.Conn]standing
	last uint64
}

// A standing is since when a connection is in its state, by a number that only grows.
type standing struct {
	state http.ConnState
	since uint64
}

// order is in which states are given up.
var order = map[http.ConnState]int{http.StateIdle: 0, http.StateNew: 1, http.StateActive: 2}

// changed is http.Server.ConnState. For a new connection it is called before anything is read from it.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if victim := c.note(conn, state); victim != nil {
		_ = victim.Close() // who serves it finds out when it reads or writes
		c.crowded()
	}
}

// note writes down a state, and says which connection has to go, if one has to.
func (c *connections) note(conn net.Conn, state http.ConnState) (victim net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.all, conn)
		return nil
	}
	if _, known := c.all[conn]; !known && state != http.StateNew {
		return nil // it had to go
	}
	c.last++
	c.all[conn] = standing{state, c.last}
	if len(c.all) <= c.most {
		return nil
	}
	victim = c.least(conn)
	delete(c.all, victim)
	return victim
}

// least is the connection that is missed least, but for the newest.
func (c *connections) least(newest net.Conn) (least net.Conn) {
	var its standing
	for conn, s := range c.all {
		if conn == newest {
			continue
		}
		if a, b := order[s.state], order[its.state]; least == nil || a < b || a == b && s.since < its.since {
			least, its = conn, s
		}
	}
	return least
}
