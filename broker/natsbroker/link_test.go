package natsbroker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A server that ends each connection for good, right behind the handshake: the link dials again, and again, also where that end
// comes before it has the connection itself.
func TestLinkOverConnectionsThatEndAtOnce(t *testing.T) {
	const bad = 200
	var dials atomic.Int32
	url := serveOnce(t, func() string {
		if dials.Add(1) > bad {
			return "PONG\r\n"
		}
		return "PONG\r\n-ERR 'Strange'\r\n"
	})
	c := Connection{URLs: []string{url}, ReconnectWait: time.Millisecond, MaxReconnectWait: time.Millisecond}.withDefaults()
	l := newLink(c, hooks{lost: func(error) {}, back: func() {}, problem: func(*nats.Subscription, error) {}})
	defer l.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.open(ctx); err != nil {
		t.Fatal(err)
	}
	for last, at := int32(0), time.Now(); dials.Load() <= bad || !l.connected(); time.Sleep(time.Millisecond) {
		if n := dials.Load(); n != last {
			last, at = n, time.Now()
		}
		if time.Since(at) > 5*time.Second {
			t.Fatalf("it dials no more after %d connections", last)
		}
	}
}

// A server that refuses each connection has answered: it is not told that there was no answer.
func TestLinkToWhoRefuses(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	told := make(chan error, 1000)
	c := Connection{URLs: []string{"nats://" + l.Addr().String()}}.withDefaults()
	link := newLink(c, hooks{lost: func(err error) { told <- err }, back: func() {}, problem: func(*nats.Subscription, error) {}})
	defer link.close()
	ctx, cancel := context.WithTimeout(context.Background(), silence+500*time.Millisecond)
	defer cancel()
	if err := link.open(ctx); err == nil {
		t.Fatal("it is open")
	}
	for close(told); len(told) > 0; {
		if err := <-told; strings.Contains(err.Error(), "no answer") {
			t.Error(err)
		}
	}
}

// A link that is closed while it is opened has no connection, whenever that comes, and whoever opens it is told, though its ctx
// does not end.
func TestLinkClosedWhileItOpens(t *testing.T) {
	t.Parallel()
	served := strings.TrimPrefix(serveOnce(t, func() string { return "PONG\r\n" }), "nats://")
	for name, dial := range map[string]func() (net.Conn, error){
		"before the handshake": func() (net.Conn, error) { return net.Dial("tcp", served) },
		"where nobody answers": func() (net.Conn, error) { return nil, errors.New("nobody is there") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l *link
			c := Connection{URLs: []string{"nats://" + served}}.withDefaults()
			c.dial = func(context.Context, string, string) (net.Conn, error) {
				l.close()
				return dial()
			}
			l = newLink(c, hooks{lost: func(error) {}, back: func() {}, problem: func(*nats.Subscription, error) {}})
			opened := make(chan error, 1)
			go func() { opened <- l.open(context.Background()) }()
			select {
			case err := <-opened:
				if !errors.Is(err, errClosed) {
					t.Errorf("open says %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("it is opened for ever")
			}
			if nc := l.conn(); nc != nil && !nc.IsClosed() {
				nc.Close()
				t.Error("it has a connection, which comes back by itself for as long as the process lives")
			}
		})
	}
}

// serveOnce greets whoever comes, and answers the first PING as it is told.
func serveOnce(t *testing.T, answer func() string) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			wg.Go(func() {
				defer c.Close()
				_, _ = io.WriteString(c, `INFO {"server_id":"x","max_payload":1024}`+"\r\n")
				for r := bufio.NewReader(c); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					if strings.HasPrefix(line, "PING") {
						_, _ = io.WriteString(c, answer())
					}
				}
			})
		}
	})
	return "nats://" + l.Addr().String()
}
