package brokertest

import (
	"errors"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// ack settles messages of one claim as handled and returns what Ack said.
func (m *member) ack(ms ...*broker.Message) error {
	// What is settled may be handed out again before Ack has returned, so it is not out any more from here on.
	m.release(ms, true)
	heard, over := m.told.count(), hasEnded(ms[0].Claim)
	err := m.acks.ack(ms)
	m.w.stories.tell(ms, "%s acked: %v", m.name, err)
	if err == nil {
		m.w.promises.made(m.name, ms, heard)
	}
	checkSettle(m.fail, "Ack", len(ms), over, err)
	return err
}

// mustAck is ack that has to return nil.
func (m *member) mustAck(ms ...*broker.Message) {
	m.w.Helper()
	for _, of := range byClaim(ms) {
		if err := m.ack(of...); err != nil {
			m.fail("Ack of %d messages: %v", len(of), err)
		}
	}
}

// nack gives messages of one claim back and returns what Nack said.
func (m *member) nack(delay time.Duration, runs int32, ms ...*broker.Message) error {
	backs := make([]broker.Back, len(ms))
	for i, msg := range ms {
		backs[i] = broker.Back{Token: msg.Token, Delay: delay, Runs: runs}
	}
	return m.giveBack(ms, backs)
}

// giveBack is nack where each message has a delay and runs of its own.
func (m *member) giveBack(ms []*broker.Message, backs []broker.Back) error {
	delay := backs[0].Delay
	m.release(ms, false)
	over := hasEnded(ms[0].Claim)
	err := m.src.Nack(ms[0].Claim, backs)
	clear(backs) // they are read during the call only
	m.w.stories.tell(ms, "%s nacked with delay %v: %v", m.name, delay, err)
	checkSettle(m.fail, "Nack", len(ms), over, err)
	return err
}

// checkSettle checks what a settle of n messages said. over: it began when its claim had ended, and then an answer that is not
// ErrLost would be of a commit that is made already.
func checkSettle(fail failure, what string, n int, over bool, err error) {
	if over && !errors.Is(err, broker.ErrLost) {
		fail("%s under a claim that had ended says %v, want ErrLost", what, err)
	}
	if lost := (*broker.LostError)(nil); errors.As(err, &lost) && (lost.N < 1 || lost.N > n) {
		fail("%s of %d messages says that %d were lost", what, n, lost.N)
	}
	if err != nil && !errors.Is(err, broker.ErrLost) && !errors.Is(err, broker.ErrSettled) {
		fail("%s returned %v, want nil, ErrLost or ErrSettled", what, err)
	}
}

func (m *member) mustNack(delay time.Duration, runs int32, ms ...*broker.Message) {
	m.w.Helper()
	for _, of := range byClaim(ms) {
		if err := m.nack(delay, runs, of...); err != nil {
			m.fail("Nack of %d messages: %v", len(of), err)
		}
	}
}

func byClaim(ms []*broker.Message) map[*broker.Claim][]*broker.Message {
	of := make(map[*broker.Claim][]*broker.Message)
	for _, m := range ms {
		of[m.Claim] = append(of[m.Claim], m)
	}
	return of
}

// release books that messages are not out any more.
func (m *member) release(ms []*broker.Message, handled bool) {
	for _, msg := range m.hand.release(ms) {
		m.w.books.End(id(msg), handled)
	}
}

// handle acks what comes until stop is called, which waits until the handling goroutine has ended.
func (m *member) handle(f func(*broker.Message)) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			ms, err := m.hand.take(1, 10*time.Millisecond)
			for _, msg := range ms {
				f(msg)
			}
			select {
			case <-over:
				return
			default:
			}
			if err != nil && len(ms) == 0 {
				return
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}
