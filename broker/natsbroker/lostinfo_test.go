package natsbroker_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// loseAnswers has the next n answers of a kind get lost, as they do while a cluster chooses its leader.
func loseAnswers(p *proxy, kind string, n int32) {
	var lost atomic.Int32
	p.rewrite(func(b []byte) {
		end := bytes.Index(b, []byte(kind))
		if end < 0 || lost.Load() >= n {
			return
		}
		// MSG <subject> <sid> <size>: of a subscription that there is not, it goes nowhere.
		line := b[bytes.LastIndex(b[:end], []byte("MSG ")):]
		sid := line[4+bytes.IndexByte(line[4:], ' ')+1:]
		sid[0] = '9'
		lost.Add(1)
	})
}

// A consumer that is made anew goes on where the one before was, also where the stream does not answer at first: it does not
// begin as one that has never been there.
func TestRecreateWhileTheStreamIsSilent(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]func(p *proxy, open func() *opened) *opened{
		"when it opens": func(p *proxy, open func() *opened) *opened {
			loseAnswers(p, "stream_info_response", 1)
			return open()
		},
		"when it makes the consumer anew": func(p *proxy, open func() *opened) *opened {
			s := open()
			loseAnswers(p, "stream_info_response", 1)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			p := startProxy(t, ts.opts.Port)
			cfg := config(p.url())
			cfg.Poll, cfg.Recreate, cfg.Deliver = time.Minute, true, jetstream.DeliverNewPolicy
			d := drainAll(silent(p, func() *opened { return open(t, cfg) }))
			a.publish(1, 1)
			d.has(t, 1)
			if err := a.js.DeleteConsumer(t.Context(), "S", "c"); err != nil {
				t.Fatal(err)
			}
			a.publish(2, 2)
			eventually(t, "what came meanwhile is handed out", func() bool { return d.got(2) })
			d.stop(t)
		})
	}
}
