package natsbroker_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A connection that ends in its handshake, again and again: the source says why, and goes on when that is mended. The client
// itself tells only of servers that cannot be dialed.
func TestHandshakesThatFail(t *testing.T) {
	t.Parallel()
	secret := func(t *testing.T) int { return startServer(t, serveAs(newAuthority(t, "another"))).opts.Port }
	for name, tc := range map[string]struct {
		port  func(*testing.T) int // of the server that is found instead
		words string
	}{
		"wants TLS":    {secret, "unknown authority"},
		"says no":      {refusing, "no room"},
		"says nothing": {silent, "i/o timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			p := startProxy(t, ts.opts.Port)
			cfg := config(p.url())
			cfg.DialTimeout = 500 * time.Millisecond
			s := open(t, cfg)
			p.lead(tc.port(t))
			p.drop()
			told(t, s.events, tc.words)
			p.lead(ts.opts.Port)
			p.drop()
			a.publish(1, 1)
			ack(t, s, receive(t, s, 1)...)
			a.settled()
		})
	}
}

// serveAs has a server that wants TLS, with a certificate of that authority.
func serveAs(a *authority) func(*server.Options) {
	cert, key := a.pair("server")
	return func(o *server.Options) {
		pair := must(tls.LoadX509KeyPair(cert, key))
		o.TLS, o.TLSTimeout = true, 5
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	}
}

// refusing greets, and has no room for whoever answers.
func refusing(t *testing.T) int {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = io.WriteString(c, "INFO {}\r\n")
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = io.WriteString(c, "-ERR 'No Room'\r\n")
			_ = c.Close()
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}

// silent takes connections and says nothing.
func silent(t *testing.T) int {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}
