package handlers_test

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An h2Server answers HTTP/2 frame by frame: do is told of the n-th request of all, 1 at first, and its stream.
type h2Server struct {
	do func(f *http2.Framer, n int, stream uint32) (goOn bool)

	mu   sync.Mutex
	seen int
}

func (s *h2Server) serve(conn net.Conn) {
	defer conn.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	f := http2.NewFramer(conn, conn)
	_ = f.WriteSettings()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		if set, ok := frame.(*http2.SettingsFrame); ok && !set.IsAck() {
			_ = f.WriteSettingsAck()
		}
		if frame.Header().Flags.Has(http2.FlagDataEndStream) && frame.Header().Type == http2.FrameData {
			s.mu.Lock()
			s.seen++
			n := s.seen
			s.mu.Unlock()
			if !s.do(f, n, frame.Header().StreamID) {
				return
			}
		}
	}
}

func (s *h2Server) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func answerH2(f *http2.Framer, stream uint32, status string) {
	var b bytes.Buffer
	_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: status})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: true})
}

// TestWebhookHTTP2Connections: what happens to a connection alone neither acks a message nor gives it up, and a request that the
// server says it has not begun is repeated within the attempt.
func TestWebhookHTTP2Connections(t *testing.T) {
	source := httptest.NewTLSServer(http.NotFoundHandler())
	defer source.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: source.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		first func(f *http2.Framer, stream uint32) (goOn bool)
		acked bool
		sent  int
	}{
		"not begun": {func(f *http2.Framer, _ uint32) bool { return f.WriteGoAway(0, http2.ErrCodeNo, nil) != nil }, true, 2},
		"refused": {func(f *http2.Framer, stream uint32) bool {
			return f.WriteRSTStream(stream, http2.ErrCodeRefusedStream) == nil
		}, true, 2},
		"a shutdown that waits": {func(f *http2.Framer, stream uint32) bool {
			_ = f.WriteGoAway(stream, http2.ErrCodeNo, nil)
			answerH2(f, stream, "204")
			return true
		}, true, 1},
		"a shutdown that does not": {func(f *http2.Framer, stream uint32) bool {
			return f.WriteGoAway(stream, http2.ErrCodeNo, nil) != nil
		}, false, 1},
		"an end in the middle": {func(f *http2.Framer, stream uint32) bool {
			return f.WriteRSTStream(stream, http2.ErrCodeInternal) == nil
		}, false, 1},
		"misdirected": {func(f *http2.Framer, stream uint32) bool { answerH2(f, stream, "421"); return true }, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &h2Server{do: func(f *http2.Framer, n int, stream uint32) bool {
				if n == 1 {
					return c.first(f, stream)
				}
				answerH2(f, stream, "204")
				return true
			}}
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: source.TLS.Certificates, NextProtos: []string{"h2"}})
			if err != nil {
				t.Fatal(err)
			}
			var serving, accepting sync.WaitGroup
			var conns []net.Conn
			accepting.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					conns = append(conns, conn)
					serving.Go(func() { s.serve(conn) })
				}
			})
			w := webhook(t, handlers.WebhookConfig{URL: "https://" + l.Addr().String(), CAFile: ca})
			err = w.Handle(t.Context(), message("in", "x"))
			if sent := s.requests(); (err == nil) != c.acked || consumer.IsPermanent(err) || sent != c.sent {
				t.Errorf("%v after %d requests, want %d", err, sent, c.sent)
			}
			if err := w.Handle(t.Context(), message("in", "y")); err != nil {
				t.Errorf("the next attempt: %v", err)
			}
			_ = w.Close()
			_ = l.Close()
			accepting.Wait()
			for _, conn := range conns {
				_ = conn.Close()
			}
			serving.Wait()
		})
	}
}
