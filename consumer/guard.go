package consumer

import "fmt"

// A guard keeps messages from the handlers: those that are too large, and those that ended their processes.
type guard struct {
	maxMessage, maxHeaders int // bytes; 0: no limit
	crashes                bool
}

func newGuard(cfg *Config) guard {
	return guard{maxMessage: cfg.MaxMessageBytes, maxHeaders: cfg.MaxHeaderBytes, crashes: cfg.DeadLetter != nil}
}

// limited says whether it has to look at each message, and not only at those that crashed.
func (g guard) limited() bool { return g.maxMessage > 0 || g.maxHeaders > 0 }

// check is the error of a message that no handler is to see.
func (g guard) check(m *Message) error {
	if m.Crashes > 0 && g.crashes {
		return fmt.Errorf("%w: %d processes in a row crashed or were killed while it was unfinished, the last while no other was in "+
			"a handler",
			ErrCrashes, m.Crashes)
	}
	if n := len(m.Key) + len(m.Value); g.maxMessage > 0 && n > g.maxMessage {
		return fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, n, g.maxMessage)
	}
	if g.maxHeaders > 0 {
		return checkHeaders(m, g.maxHeaders)
	}
	return nil
}

// checkHeaders is apart from check since what it does needs memory.
func checkHeaders(m *Message, most int) error {
	n := 0
	for name, value := range m.Headers.All() {
		if n += len(name) + len(value); n > most {
			return fmt.Errorf("%w: more than %d bytes of headers", ErrTooLarge, most)
		}
	}
	return nil
}
