package brokertest

import (
	"context"
	"sync"
	"time"
)

// A fate is what became of a member's process, and what excuses it.
type fate struct {
	mu     sync.Mutex
	closed bool // Close was called
	gone   bool // killed or frozen: it cannot keep its promises
	hangs  bool
}

func (f *fate) is() (closed, gone, hangs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed, f.gone, f.hangs
}

func (f *fate) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// lose lets the member break promises that the case makes it break.
func (f *fate) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
}

func (f *fate) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.gone, f.hangs = true, true, true
}

// close closes the source and waits until receiving has ended.
func (m *member) close() {
	m.w.Helper()
	ctx, cancel := within(m.w.h.Patience)
	defer cancel()
	if err := m.closeCtx(ctx); err != nil {
		m.fail("Close: %v", err)
	}
}

func (m *member) closeCtx(ctx context.Context) error {
	m.fate.close()
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
		m.fail("Close did not return within %v, although its ctx has ended%s", 2*m.w.h.Patience, m.w.h.stacks())
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
		m.fail("Receive did not return after %s", after)
	}
}

// kill ends the member without a goodbye.
func (m *member) kill() {
	m.fate.lose()
	m.p.Kill()
}

func (m *member) freeze() {
	m.fate.lose()
	m.p.Freeze()
}

// abandon leaves a member alone that hangs: the case has failed, and closing it would hang, too.
func (m *member) abandon() {
	m.fate.hang()
}

// mend undoes what was done to the process.
func (m *member) mend() {
	if _, _, hangs := m.fate.is(); hangs {
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
	closed, gone, _ := m.fate.is()
	if !closed {
		ctx, cancel := within(m.w.h.Patience)
		defer cancel()
		if err := m.closeCtx(ctx); err != nil && !gone {
			m.fail("Close: %v", err)
		}
	}
	if !gone {
		m.claims.allEnded()
	}
}
