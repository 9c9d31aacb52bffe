package faultproxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/longshoremq/longshore/broker/brokertest/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deadline = 20 * time.Second

// short is how long we look whether something that must not come comes all the same. Only the deadline decides whether what must
// come came.
const short = 50 * time.Millisecond

func TestPasses(t *testing.T) {
	_, c := open(t)
	echo(t, c, "hello")
}

func TestHoldKeepsOneDirectionAndHealLetsGo(t *testing.T) {
	for d, name := range map[faultproxy.Direction]string{faultproxy.ToServer: "to server", faultproxy.ToClient: "to client"} {
		t.Run(name, func(t *testing.T) {
			p, c := open(t)
			echo(t, c, "before")
			p.Set(d, faultproxy.Shape{Hold: true})
			write(t, c, "held")
			nothing(t, c)
			p.Heal()
			expect(t, c, "held")
		})
	}
}

// The end of a connection is held as its bytes are, also where the proxy learns of it by what it writes.
func TestHoldKeepsTheEnd(t *testing.T) {
	for name, end := range map[string]func(c *net.TCPConn){
		"closed": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"reset": func(c *net.TCPConn) {
			_ = c.SetLinger(0)
			_ = c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, c, server := between(t)
			p.Set(faultproxy.ToServer, faultproxy.Shape{Hold: true})
			end(c)
			nothing(t, server)
			write(t, server, "to one that is gone")
			nothing(t, server)
			p.Heal()
			_ = server.SetDeadline(time.Now().Add(deadline))
			if _, err := server.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read after the hold: %v, want the end", err)
			}
		})
	}
}

func TestResetIsSeenByTheClient(t *testing.T) {
	p, c := open(t)
	echo(t, c, "before")
	p.Refuse(true)
	if n := p.Reset(); n != 1 {
		t.Fatalf("%d connections reset, want 1", n)
	}
	_ = c.SetDeadline(time.Now().Add(deadline))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read after a reset: %v, want connection reset", err)
	}
	if again, err := net.Dial("tcp", p.Addr()); err == nil {
		_ = again.SetDeadline(time.Now().Add(deadline))
		if _, err := again.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a refused connection lives: %v", err)
		}
		again.Close()
	}
	p.Heal()
	echo(t, dial(t, p), "after")
}

func TestConnectionsDieOfAge(t *testing.T) {
	p, before := open(t)
	echo(t, before, "before")
	p.Live(10*time.Millisecond, 20*time.Millisecond)
	c := dial(t, p)
	_ = c.SetDeadline(time.Now().Add(deadline))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read from a connection whose time is over: %v, want connection reset", err)
	}
	if n := p.Died(); n != 1 {
		t.Errorf("%d connections died, want 1", n)
	}
	echo(t, before, "one that was there before lives on")
	p.Heal()
	echo(t, dial(t, p), "after")
}

func TestResetEndsWhatIsHeld(t *testing.T) {
	p, c := open(t)
	p.SetBoth(faultproxy.Shape{Hold: true})
	write(t, c, "held")
	p.Reset()
	for end := time.Now().Add(deadline); p.Links() > 0; {
		if time.Now().After(end) {
			t.Fatalf("%d connections left", p.Links())
		}
		time.Sleep(time.Millisecond)
	}
}

func TestSlowNetworkDeliversAll(t *testing.T) {
	p, c := open(t)
	p.SetBoth(faultproxy.Shape{Latency: time.Millisecond, BytesPerSecond: 100_000, Slice: 7})
	began := time.Now()
	echo(t, c, "a line that is longer than one slice")
	if took := time.Since(began); took < 2*time.Millisecond {
		t.Fatalf("took %v, less than the latency both ways", took)
	}
}

// open starts an echo server, a proxy before it, and a connection.
func open(t *testing.T) (*faultproxy.Proxy, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	p, err := faultproxy.New(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, dial(t, p)
}

// between is a proxy with one connection through it, and both ends of that.
func between(t *testing.T) (p *faultproxy.Proxy, client, server *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if p, err = faultproxy.New(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	client = dial(t, p)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return p, client, c.(*net.TCPConn)
}

func dial(t *testing.T, p *faultproxy.Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func echo(t *testing.T, c *net.TCPConn, s string) {
	t.Helper()
	write(t, c, s)
	expect(t, c, s)
}

func write(t *testing.T, c *net.TCPConn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c *net.TCPConn, want string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(deadline))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

func nothing(t *testing.T, c *net.TCPConn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(short))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v through a blackhole", n, err)
	}
}
