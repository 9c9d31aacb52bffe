package handlers

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A cable is a connection that may be cut without either side hearing of it.
type cable struct {
	net.Conn
	cut *atomic.Bool
}

func (c cable) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A socket is a listener for connections in memory.
type socket struct {
	conns chan net.Conn
	done  chan struct{}
}

func (s *socket) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *socket) Close() error   { close(s.done); return nil }
func (s *socket) Addr() net.Addr { return &net.TCPAddr{} }

// TestWebhookConnectionThatIsCut: a connection that is gone without a word is given up after a few attempts. In HTTP/2 a timeout
// ends the request only, so each attempt had gone the same way, a hundred of them, for as long as these took.
func TestWebhookConnectionThatIsCut(t *testing.T) {
	certs := httptest.NewTLSServer(nil)
	defer certs.Close()
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := &socket{make(chan net.Conn), make(chan struct{})}
				s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if h2 := r.ProtoMajor == 2; h2 != (protocol == "h2") {
						t.Errorf("a request by %s", r.Proto)
					}
				})}
				defer s.Close()
				config := &tls.Config{Certificates: certs.TLS.Certificates, NextProtos: []string{protocol}}
				go func() { _ = s.Serve(tls.NewListener(listener, config)) }()

				transport, err := WebhookConfig{}.withDefaults().transport()
				if err != nil {
					t.Fatal(err)
				}
				cut := &atomic.Bool{} // of the latest connection
				transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
					cut = &atomic.Bool{}
					here, there := net.Pipe()
					listener.conns <- there
					return cable{here, cut}, nil
				}
				transport.Proxy, transport.TLSClientConfig = nil, certs.Client().Transport.(*http.Transport).TLSClientConfig
				w, err := NewWebhook(WebhookConfig{URL: "https://example.com", Timeout: 10 * time.Second, Transport: transport})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				if err := w.call(t.Context(), []byte("x"), nil); err != nil {
					t.Fatal(err)
				}
				cut.Store(true)
				attempts := 1
				for w.call(t.Context(), []byte("x"), nil) != nil && attempts < 50 {
					attempts++
				}
				if attempts > 5 {
					t.Errorf("%d attempts took the connection that is cut", attempts-1)
				}
			})
		})
	}
}
