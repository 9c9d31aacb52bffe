package brokertest

import (
	"context"
	"errors"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// ack settles messages of one claim as handled and returns what Ack said.
func (m *member) ack(ms ...*broker.Message) error {
	// What is settled may be handed out again before Ack has returned, so it is not out any more from here on.
	m.release(ms, true)
	heard, over := m.heard(), hasEnded(ms[0].Claim)
	err := m.settle(ms)
	m.fenced("Ack", over, err)
	m.w.tell(ms, "%s acked: %v", m.name, err)
	if err == nil {
		m.w.promise(m, ms, heard)
	}
	m.known("Ack", len(ms), err)
	return err
}

// mustAck is ack that has to return nil.
func (m *member) mustAck(ms ...*broker.Message) {
	m.w.Helper()
	for _, of := range byClaim(ms) {
		if err := m.ack(of...); err != nil {
			m.w.Errorf("%s: Ack of %d messages: %v", m.name, len(of), err)
		}
	}
}

// nack gives messages of one claim back and returns what Nack said.
func (m *member) nack(delay time.Duration, runs int32, ms ...*broker.Message) error {
	backs := make([]broker.Back, len(ms))
	for i, msg := range ms {
		backs[i] = broker.Back{Token: msg.Token, Delay: delay, Runs: runs}
	}
	m.release(ms, false)
	over := hasEnded(ms[0].Claim)
	err := m.src.Nack(ms[0].Claim, backs)
	m.fenced("Nack", over, err)
	m.w.tell(ms, "%s nacked with delay %v: %v", m.name, delay, err)
	m.known("Nack", len(ms), err)
	return err
}

// fenced checks that a settle which began when its claim had ended says ErrLost: another answer would be of a commit that is made
// already.
func (m *member) fenced(what string, over bool, err error) {
	if over && !errors.Is(err, broker.ErrLost) {
		m.w.Errorf("%s: %s under a claim that had ended says %v, want ErrLost", m.name, what, err)
	}
}

func hasEnded(c *broker.Claim) bool {
	select {
	case <-c.Ended():
		return true
	default:
		return false
	}
}

func (m *member) mustNack(delay time.Duration, runs int32, ms ...*broker.Message) {
	m.w.Helper()
	for _, of := range byClaim(ms) {
		if err := m.nack(delay, runs, of...); err != nil {
			m.w.Errorf("%s: Nack of %d messages: %v", m.name, len(of), err)
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

// known checks that a settle's error is one of the contract's.
func (m *member) known(what string, n int, err error) {
	if lost := (*broker.LostError)(nil); errors.As(err, &lost) && (lost.N < 1 || lost.N > n) {
		m.w.Errorf("%s: %s of %d messages says that %d were lost", m.name, what, n, lost.N)
	}
	if err != nil && !errors.Is(err, broker.ErrLost) && !errors.Is(err, broker.ErrSettled) {
		m.w.Errorf("%s: %s returned %v, want nil, ErrLost or ErrSettled", m.name, what, err)
	}
}

// release books that messages are not out any more.
func (m *member) release(ms []*broker.Message, handled bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range ms {
		if m.heldMsgs[id(msg)] {
			delete(m.heldMsgs, id(msg))
			m.bytes -= size(msg)
			m.w.books.End(id(msg), handled)
		}
	}
}

// handle acks what comes until stop is called, which waits until the handling goroutine has ended.
func (m *member) handle(f func(*broker.Message)) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			ms, err := m.tryTake(1, 10*time.Millisecond)
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

// close closes the source and waits until receiving has ended.
func (m *member) close() {
	m.w.Helper()
	ctx, cancel := within(m.w.h.Patience)
	defer cancel()
	if err := m.closeCtx(ctx); err != nil {
		m.w.Errorf("%s: Close: %v", m.name, err)
	}
}

func (m *member) closeCtx(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	err := m.bounded(ctx)
	m.waitStopped("Close")
	return err
}

// bounded calls Close, and does not wait for ever when that does.
func (m *member) bounded(ctx context.Context) error {
	result := make(chan error, 1)
	go func() { result <- m.src.Close(ctx) }()
	late := time.NewTimer(2 * m.w.h.Patience) // ctx has ended for long by then
	defer late.Stop()
	select {
	case err := <-result:
		return err
	case <-late.C:
		m.w.Errorf("%s: Close did not return within %v, although its ctx has ended%s", m.name, 2*m.w.h.Patience, m.w.stacks())
		return nil
	}
}

// waitStopped waits until Receive has returned its error.
func (m *member) waitStopped(after string) {
	if m.stopped == nil {
		return
	}
	t := time.NewTimer(m.w.h.Patience)
	defer t.Stop()
	select {
	case <-m.stopped:
	case <-t.C:
		m.w.Errorf("%s: Receive did not return after %s", m.name, after)
	}
}

// kill ends the member without a goodbye.
func (m *member) kill() {
	m.mu.Lock()
	m.gone = true
	m.mu.Unlock()
	m.p.Kill()
}

func (m *member) freeze() {
	m.mu.Lock()
	m.gone = true
	m.mu.Unlock()
	m.p.Freeze()
}

// abandon leaves a member alone that hangs: the case has failed, and closing it would hang, too.
func (m *member) abandon() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone, m.closed, m.hangs = true, true, true
}

// mend undoes what was done to the process.
func (m *member) mend() {
	m.mu.Lock()
	hangs := m.hangs
	m.mu.Unlock()
	if hangs {
		return
	}
	if m.p.Thaw != nil {
		m.p.Thaw()
	}
	if m.p.Heal != nil {
		m.p.Heal()
	}
}

// end closes the member at the end of a case, and checks that all its claims have ended.
func (m *member) end() {
	m.mu.Lock()
	closed, gone := m.closed, m.gone
	m.mu.Unlock()
	if !closed {
		ctx, cancel := within(m.w.h.Patience)
		defer cancel()
		if err := m.closeCtx(ctx); err != nil && !gone {
			m.w.Errorf("%s: Close: %v", m.name, err)
		}
	}
	if gone {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for c, b := range m.claims {
		select {
		case <-c.Ended():
			if !b.ended {
				m.w.Errorf("%s: a claim ended without an Ended event", m.name)
			}
		default:
			m.w.Errorf("%s: after Close a claim has not ended", m.name)
		}
	}
}
