package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/longshoremq/longshore/integration/sim/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const address = "127.0.0.1:4222"

// pair is a network with one server and one process, and a connection of both.
func pair(t *testing.T, cfg memnet.HostConfig) (h *memnet.Host, l net.Listener, client, server net.Conn) {
	t.Helper()
	n := memnet.New()
	l, err := n.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	h = n.Host(cfg)
	client, server = dial(t, h, l)
	return h, l, client, server
}

func dial(t *testing.T, h *memnet.Host, l net.Listener) (client, server net.Conn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	client, err := h.Dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return client, <-accepted
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if n, err := c.Write([]byte(s)); n != len(s) || err != nil {
		t.Fatalf("writing %q: %d, %v", s, n, err)
	}
}

// read wants exactly s, and says how long it took.
func read(t *testing.T, c net.Conn, s string) time.Duration {
	t.Helper()
	began, b := time.Now(), make([]byte, len(s))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != s {
		t.Fatalf("read %q, %v; want %q", b, err, s)
	}
	return time.Since(began)
}

// fails wants a read that ends with an error at once.
func fails(t *testing.T, c net.Conn, want error) {
	t.Helper()
	began := time.Now()
	n, err := c.Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, want) || time.Since(began) != 0 {
		t.Fatalf("read %d bytes, %v, after %v; want %v at once", n, err, time.Since(began), want)
	}
}

func TestBytesArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, client, server := pair(t, memnet.HostConfig{})
		write(t, client, "one")
		h.Delay(time.Minute)
		write(t, client, "two")
		h.Delay(0)
		write(t, client, "three") // not before what was sent before it
		if took := read(t, server, "one"); took != 0 {
			t.Errorf("without a delay it took %v", took)
		}
		if took := read(t, server, "twothree"); took != time.Minute {
			t.Errorf("with a delay of a minute it took %v", took)
		}
		write(t, server, "answer")
		read(t, client, "answer")
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		fails(t, client, net.ErrClosed)
		fails(t, server, io.EOF)
		if _, err := server.Write([]byte("late")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a write to who has closed: %v", err)
		}
	})
}

func TestCutsKeepBack(t *testing.T) {
	for name, d := range map[string]memnet.Direction{"out": memnet.Out, "in": memnet.In} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _, from, to := pair(t, memnet.HostConfig{})
				if d == memnet.In {
					from, to = to, from
				}
				heal, another := h.Cut(d, address), h.Cut(d, "")
				write(t, from, "kept back")
				write(t, to, "passes")
				if took := read(t, from, "passes"); took != 0 {
					t.Errorf("the other direction took %v", took)
				}
				go func() {
					time.Sleep(time.Minute)
					heal()
					heal() // of no effect
					time.Sleep(59 * time.Minute)
					another()
				}()
				if took := read(t, to, "kept back"); took != time.Hour {
					t.Errorf("through a cut of an hour it took %v", took)
				}
			})
		})
	}
}

// A process that dies beyond a cut is heard of when the cut is over.
func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, client, server := pair(t, memnet.HostConfig{})
		heal := h.Cut(memnet.Both, "")
		write(t, client, "last words")
		h.Kill()
		fails(t, client, net.ErrClosed)
		if _, err := client.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write of the dead: %v", err)
		}
		if _, err := h.Dial(t.Context(), "tcp", address); err == nil {
			t.Error("the dead connects")
		}
		_ = server.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := server.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("through the cut came %d bytes, %v", n, err)
		}
		_ = server.SetReadDeadline(time.Time{})
		heal()
		read(t, server, "last words")
		fails(t, server, io.EOF)
	})
}

func TestBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l, client, server := pair(t, memnet.HostConfig{})
		h.LoseAnswers(1)
		write(t, client, "do it")
		read(t, server, "do it")
		write(t, server, "done") // is lost, and the connection with it
		fails(t, client, syscall.ECONNRESET)
		fails(t, server, syscall.ECONNRESET)

		client, server = dial(t, h, l)
		write(t, server, "done")
		read(t, client, "done")
		go func() {
			time.Sleep(time.Second)
			h.Away(true)
		}()
		if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("who waits for a server that goes away reads %d, %v", n, err)
		}
		fails(t, server, syscall.ECONNRESET)
		if _, err := h.Dial(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialing a server that is away: %v", err)
		}
		h.Away(false)
		client, _ = dial(t, h, l)
		h.Break("127.0.0.1:1")
		write(t, client, "to another server")
		h.Break(address)
		fails(t, client, syscall.ECONNRESET)
		_ = l.Close()
		if _, err := h.Dial(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialing where nobody listens: %v", err)
		}
	})
}

func TestDialThroughACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l, _, _ := pair(t, memnet.HostConfig{})
		heal := h.Cut(memnet.In, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if _, err := h.Dial(ctx, "tcp", address); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("it ended after %v with %v", time.Since(began), err)
		}
		go func() {
			time.Sleep(time.Hour)
			heal()
		}()
		began = time.Now()
		if dial(t, h, l); time.Since(began) != time.Hour {
			t.Errorf("through a cut of an hour it took %v", time.Since(began))
		}
	})
}

// Until its greeting is over nothing waits for the clock, of a client that cannot bear it.
func TestGreetings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		greeted := func(b []byte) bool { return strings.HasSuffix(string(b), "PONG") }
		h, l, client, server := pair(t, memnet.HostConfig{Greeted: greeted})
		h.Delay(time.Minute)
		write(t, client, "PING")
		read(t, server, "PING")
		write(t, server, "PO")
		read(t, client, "PO")
		if time.Since(began) != 0 {
			t.Errorf("the greeting took %v", time.Since(began))
		}
		heal := h.Cut(memnet.In, "")
		fails(t, client, syscall.ECONNRESET)
		if _, err := h.Dial(t.Context(), "tcp", address); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 0 {
			t.Errorf("a dial through a cut ended after %v with %v", time.Since(began), err)
		}
		heal()
		client, server = dial(t, h, l)
		write(t, server, "PONG")
		read(t, client, "PONG")
		write(t, client, "SUB")
		if took := read(t, server, "SUB"); took != time.Minute {
			t.Errorf("after the greeting a delay of a minute took %v", took)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, client, server := pair(t, memnet.HostConfig{})
		_ = client.SetReadDeadline(time.Now().Add(time.Hour))
		go func() {
			time.Sleep(time.Second)
			_ = client.SetDeadline(time.Now().Add(time.Second)) // wakes who waits already
		}()
		began := time.Now()
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 2*time.Second {
			t.Errorf("read after %v: %v", time.Since(began), err)
		}
		if _, err := client.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write: %v", err)
		}
		_ = client.SetWriteDeadline(time.Time{})
		write(t, client, "x")
		read(t, server, "x")
	})
}

func TestAddresses(t *testing.T) {
	n := memnet.New()
	a, err := n.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := n.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if a.Addr().String() == b.Addr().String() {
		t.Errorf("two listeners at %v", a.Addr())
	}
	if _, err := n.Listen("tcp", a.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener there: %v", err)
	}
	_ = a.Close()
	if _, err := n.Listen("tcp", a.Addr().String()); err != nil {
		t.Errorf("after its end: %v", err)
	}
	if _, err := n.Listen("tcp", "nonsense"); err == nil {
		t.Error("nonsense is an address")
	}
}
