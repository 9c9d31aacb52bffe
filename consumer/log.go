package consumer

import (
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/rs/zerolog"
)

// logBurst is how many events of one name are logged in a second; the rest is counted into "suppressed" of the next one.
const logBurst = 10

// LogEvents logs events: one per thing that happened, with the event's name in "event". Names and fields are stable. Keys, payloads and header
// values are never logged. More than 10 events of one name in a second are not written; the next one says in "suppressed" how many.
// Handled is not logged.
func LogEvents(log zerolog.Logger) Observer {
	l := &eventLog{log: log, seen: map[string]*burst{}}
	return l.observe
}

type eventLog struct {
	log  zerolog.Logger
	mu   sync.Mutex
	seen map[string]*burst
}

// burst counts the events of one name in the second that began at start.
type burst struct {
	start      time.Time
	n          int
	suppressed int64
}

// allow says whether an event of that name may be logged now, and how many were not before it.
func (l *eventLog) allow(name string, now time.Time) (suppressed int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.seen[name]
	if b == nil {
		b = &burst{start: now}
		l.seen[name] = b
	}
	if now.Sub(b.start) >= time.Second {
		b.start, b.n = now, 0
	}
	if b.n++; b.n > logBurst {
		b.suppressed++
		return 0, false
	}
	suppressed, b.suppressed = b.suppressed, 0
	return suppressed, true
}

func (l *eventLog) observe(e Event) {
	if _, ok := e.(Handled); ok {
		return
	}
	level := levelOf(e)
	if level < l.log.GetLevel() {
		return
	}
	suppressed, ok := l.allow(e.Name(), time.Now())
	if !ok {
		return
	}
	line := l.log.WithLevel(level).Str("event", e.Name())
	if suppressed > 0 {
		line = line.Int64("suppressed", suppressed)
	}
	fields(line, e).Send()
}

// levelOf: error needs somebody, warn may, info tells.
func levelOf(e Event) zerolog.Level {
	switch e := e.(type) {
	case DeadLetterDelayed, Stuck:
		return zerolog.ErrorLevel
	case Failed, DeadLettered, Lost:
		return zerolog.WarnLevel
	case SourceSaid:
		switch e.Kind {
		case broker.Down, broker.Gap, broker.Unconfirmed, broker.Stalled, broker.Warning:
			return zerolog.WarnLevel
		}
	case Drained:
		if e.Stuck > 0 {
			return zerolog.ErrorLevel
		}
	}
	return zerolog.InfoLevel
}

// fields adds what e says.
func fields(z *zerolog.Event, e Event) *zerolog.Event {
	switch e := e.(type) {
	case StateChanged:
		return z.Stringer("state", e.State)
	case SourceSaid:
		return sourceFields(z, e.Event)
	case Failed:
		return failedFields(z, e)
	case DeadLettered:
		return failedFields(z, e.Failed).Str("to", e.Topic).Int64("took_ms", e.Took.Milliseconds())
	case DeadLetterDelayed:
		return at(z, e.Message).Err(e.Err).Bool("refused", e.Refused).Int64("delay_ms", e.Delay.Milliseconds())
	case Skipped:
		return at(z, e.Message).Str("reason", e.Reason)
	case GivenBack:
		return z.Int("messages", e.N).Str("reason", e.Reason)
	case Lost:
		return z.Int("messages", e.N).Err(e.Err)
	case Scaled:
		o := e.Observation
		return z.Int("from", e.From).Int("to", e.Target).Str("reason", e.Reason).Int("backlog", o.Backlog).Int("idle", o.Idle).Int("busy", o.Busy)
	case Stuck:
		return at(z, e.Message).Int64("running_ms", e.For.Milliseconds()).Bool("replaced", e.Replaced).Str("stack", e.Stack)
	case Drained:
		return z.Int64("took_ms", e.Took.Milliseconds()).Int("stuck", e.Stuck)
	}
	return z
}

func at(z *zerolog.Event, m *Message) *zerolog.Event {
	z = z.Str("topic", m.Topic)
	if m.Partition >= 0 {
		z = z.Int32("partition", m.Partition)
	}
	if m.Offset >= 0 {
		z = z.Int64("offset", m.Offset)
	}
	if m.ID != "" {
		z = z.Str("id", m.ID)
	}
	return z.Int32("attempt", m.Attempt)
}

func failedFields(z *zerolog.Event, e Failed) *zerolog.Event {
	z = at(z, e.Message).Err(e.Err).Str("class", e.Class).Int32("runs", e.Runs).Stringer("verdict", e.Verdict)
	if e.Verdict == VerdictRetry {
		z = z.Int64("delay_ms", e.Delay.Milliseconds())
	}
	if e.Exhausted {
		z = z.Bool("exhausted", true)
	}
	if p, ok := panicOf(e.Err); ok {
		z = z.Bytes("stack", p.Stack)
	}
	return z
}

func sourceFields(z *zerolog.Event, e broker.Event) *zerolog.Event {
	if e.Claim != nil {
		z = z.Str("topic", e.Claim.Topic)
		if e.Claim.Partition >= 0 {
			z = z.Int32("partition", e.Claim.Partition)
		}
	}
	if e.Kind == broker.Gap || e.Kind == broker.Stalled {
		z = z.Int64("from", e.From)
	}
	if e.N != 0 {
		z = z.Int64("messages", e.N)
	}
	if e.Err != nil {
		z = z.Err(e.Err)
	}
	return z
}
