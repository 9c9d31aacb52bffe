package admin_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer/admin"
)

// A crowd is clients that keep their connections.
type crowd struct {
	t   *testing.T
	to  string
	all []net.Conn
}

// join makes so many connections, each of which writes a text; answered: and gets its answer.
func (c *crowd) join(n int, text string, answered bool) {
	c.t.Helper()
	for range n {
		conn, err := net.Dial("tcp", c.to)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { conn.Close() })
		c.all = append(c.all, conn)
		if _, err := io.WriteString(conn, text); err != nil {
			c.t.Fatal(err)
		}
		if !answered {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || r.StatusCode != 200 {
			c.t.Fatalf("%v %v", r, err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// open is how many of them the server has not closed.
func (c *crowd) open() (n int) {
	for _, conn := range c.all {
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		_, err := io.Copy(io.Discard, conn)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			n++
		}
	}
	return n
}

const getLive = "GET /livez HTTP/1.1\r\nHost: localhost\r\n"

// Health is answered beside clients that fill all connections, however they do it: it takes the place of one of them, and the
// others stay.
func TestHealthHasRoom(t *testing.T) {
	const most = 64
	for name, c := range map[string]struct {
		text     string
		answered bool
	}{
		"idle after a request": {getLive + "\r\n", true},
		"nothing said":         {"", false},
		"half a header":        {getLive, false},
		"a body that does not come": {"POST /consumers/orders/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
			false},
		"health with a body to come": {getLive + "Content-Length: 100\r\n\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, url := serveAs(t, admin.Config{Targets: targets(), MaxConnections: most}, func(h *http.Server) {
				// however long it takes here: none of them ends because of that
				h.ReadHeaderTimeout, h.ReadTimeout, h.WriteTimeout, h.IdleTimeout = time.Hour, time.Hour, time.Hour, time.Hour
			})
			all := &crowd{t: t, to: s.Addr().String()}
			all.join(most, c.text, c.answered)
			for range 3 {
				client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
				a, err := client.Get(url + "/livez")
				if err != nil {
					t.Fatal(err)
				}
				a.Body.Close()
				if a.StatusCode != 200 {
					t.Errorf("%s", a.Status)
				}
			}
			if n := all.open(); n < most/2 {
				t.Errorf("%d of %d connections are left: health waited for them to end", n, most)
			}
		})
	}
}

// What was idle longest goes first, and who asks again counts as young.
func TestOldestIdleGoesFirst(t *testing.T) {
	s, _ := serve(t, admin.Config{Targets: targets(), MaxConnections: 3})
	all := &crowd{t: t, to: s.Addr().String()}
	ask := func(n int, ask func()) {
		ask()
		for s.Idle() < n { // else which is idle longest is the scheduler's choice
			time.Sleep(time.Millisecond)
		}
	}
	for n := range 3 {
		ask(n+1, func() { all.join(1, getLive+"\r\n", true) })
	}
	first := &crowd{t: t, to: all.to, all: all.all[:1]}
	ask(3, func() {
		fmt.Fprint(all.all[0], getLive+"\r\n")
		if r, err := http.ReadResponse(bufio.NewReader(all.all[0]), nil); err != nil || r.StatusCode != 200 {
			t.Fatalf("%v %v", r, err)
		}
	})
	for range 2 {
		ask(3, func() { all.join(1, getLive+"\r\n", true) })
	}
	n, m := first.open(), all.open()
	for end := time.Now().Add(20 * time.Second); m != 3 && time.Now().Before(end); { // who gets no processor sees none of the ends
		n, m = first.open(), all.open()
	}
	if n != 1 || m != 3 {
		t.Errorf("the first is open: %d; %d in all", n, m)
	}
}
