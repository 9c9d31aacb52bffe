package natsbroker

import (
	"context"
	"sync"
)

const (
	// mostAhead are asked for at once. A request waits for nearly all of its time: one after the other, 10,000 take a second on a
	// quiet server, and half a minute where its processors are busy.
	mostAhead = 32
	// bytesAhead is about how much of messages may be on its way at once, but for one message, which always may.
	bytesAhead = 4 << 20
)

// A lookahead reads the messages of a subject in the order of their stream, and asks for several before it needs them. Each
// request names a sequence, and is answered with the first message at or behind it. So where messages stand side by side each
// answer is of use; behind a gap several are the same message. Therefore it asks for one more at once with each message that
// stands where it was asked for, and for half as many with each gap: what stands far apart is asked for one after the other.
type lookahead struct {
	get   func(ctx context.Context, seq uint64) (*storedMsg, error)
	at    uint64       // what the first of asked was asked with; where there is none, what comes next
	asked []chan found // one after the other, from at on
	width int          // as many may be asked for at once
	asks  sync.WaitGroup
}

type found struct {
	m   *storedMsg
	err error
}

// each calls do for every message from at on up to last, and returns its first error, or that of a request;
// jetstream.ErrMsgNotFound where there is none any more. No request is under way when it returns.
func (l *lookahead) each(ctx context.Context, last uint64, do func(*storedMsg) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.asks.Wait()
	defer cancel()
	l.width = 1
	for l.at <= last {
		l.ask(ctx, last)
		f := <-l.asked[0]
		if f.err != nil {
			return f.err
		}
		if f.m.Seq > last {
			return nil
		}
		l.came(f.m)
		if err := do(f.m); err != nil {
			return err
		}
	}
	return nil
}

// ask sends as many requests as may be under way.
func (l *lookahead) ask(ctx context.Context, last uint64) {
	for seq := l.at + uint64(len(l.asked)); len(l.asked) < l.width && seq <= last; seq++ {
		answer := make(chan found, 1)
		l.asked = append(l.asked, answer)
		l.asks.Go(func() {
			m, err := l.get(ctx, seq)
			answer <- found{m, err}
		})
	}
}

// came goes on behind a message: what was asked for up to there would be answered with the same.
func (l *lookahead) came(m *storedMsg) {
	gap := m.Seq - l.at
	l.asked = l.asked[min(uint64(len(l.asked)), gap+1):]
	l.at = m.Seq + 1
	if gap == 0 {
		l.width++
	} else {
		l.width /= 2
	}
	l.width = max(1, min(l.width, mostAhead, bytesAhead/max(1, len(m.Data)+len(m.Header))))
}
