package consumer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/rs/zerolog"
)

// A logPace is how many events are logged in a span of time; the rest is counted.
type logPace struct {
	most int
	span time.Duration
}

var (
	pacePerName = logPace{10, time.Second}
	// pacePerReason is of dead letters that cannot be stored: each of them is tried again and again, and fails by the same reason.
	pacePerReason = logPace{1, time.Minute}
)

// mostReasons bounds the reasons that are told apart: one may name its letter.
const mostReasons = 100

// loggerOr is l; that of stderr where none was set.
func loggerOr(l zerolog.Logger) zerolog.Logger {
	if !reflect.ValueOf(l).IsZero() {
		return l
	}
	out := zerolog.ConsoleWriter{Out: os.Stderr, NoColor: !isTerminal(os.Stderr), TimeFormat: time.TimeOnly,
		PartsOrder: []string{zerolog.TimestampFieldName, zerolog.LevelFieldName, eventField}, FieldsExclude: []string{eventField}}
	return zerolog.New(out).Level(zerolog.WarnLevel).With().Timestamp().Logger()
}

// isTerminal says whether somebody reads f as it is written, in colours.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
}

// eventField has an event's name.
const eventField = "event"

// LogEvents logs events: one per thing that happened, with the event's name in "event". Names and fields are stable. Keys,
// payloads and header values are never logged. More than 10 events of one name in a second are not written; when that second is
// over, and when the consumer has stopped, a line with the event's name says in "suppressed" how many. Of DeadLetterDelayed each
// error is written once a minute, and so is how many more there were of it. Handled and Operated are not logged.
func LogEvents(log zerolog.Logger) Observer {
	l := &eventLog{log: log, seen: bursts{}}
	return l.observe
}

type eventLog struct {
	log  zerolog.Logger
	mu   sync.Mutex
	seen bursts
}

// A matter is what is told together: the events of a name, or those of them that have an error.
type matter struct{ name, reason string }

// burst counts the events of one matter in the span that began at start.
type burst struct {
	logPace
	start      time.Time
	n          int
	suppressed int64
	level      zerolog.Level // the highest of those
	timer      *time.Timer   // tells of them; set while there are any
}

// bursts are what was told lately, by matter. It has no lock.
type bursts map[matter]*burst

// of returns what counts the events that are told together with e.
func (bs bursts) of(e Event, now time.Time) (matter, *burst) {
	m, p := matter{name: e.Name()}, pacePerName
	if d, ok := e.(DeadLetterDelayed); ok && d.Err != nil {
		if of := (matter{m.name, d.Err.Error()}); bs[of] != nil || bs.room(now) {
			m, p = of, pacePerReason
		}
	}
	b := bs[m]
	if b == nil {
		b = &burst{logPace: p, start: now}
		bs[m] = b
	}
	return m, b
}

// room says whether one more may be told apart, and forgets those that are over where there are many.
func (bs bursts) room(now time.Time) bool {
	if len(bs) >= mostReasons {
		maps.DeleteFunc(bs, func(_ matter, b *burst) bool { return b.timer == nil && now.Sub(b.start) >= b.span })
	}
	return len(bs) < mostReasons
}

// allow says whether e may be logged now. If not, it is told of later.
func (l *eventLog) allow(e Event, level zerolog.Level, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, b := l.seen.of(e, now)
	if now.Sub(b.start) >= b.span {
		b.start, b.n = now, 0
	}
	if b.n++; b.n <= b.most {
		return true
	}
	if b.suppressed++; b.timer == nil {
		b.level = level
		late := Observer(func(Event) { l.flush(m) }) // a writer that panics there would end the process
		b.timer = time.AfterFunc(b.start.Add(b.span).Sub(now), func() { late.call(e) })
	}
	b.level = max(b.level, level)
	return false
}

// flush tells how many events of m were not written.
func (l *eventLog) flush(m matter) {
	l.mu.Lock()
	b := l.seen[m]
	if b == nil || b.timer == nil { // there are none
		l.mu.Unlock()
		return
	}
	n, level := b.suppressed, b.level
	b.timer.Stop()
	b.suppressed, b.timer = 0, nil
	l.mu.Unlock()
	z := l.log.WithLevel(level).Str(eventField, m.name).Int64("suppressed", n)
	if m.reason != "" {
		z = z.Str(zerolog.ErrorFieldName, m.reason)
	}
	z.Send()
}

// flushAll is flush for all: the consumer has stopped.
func (l *eventLog) flushAll() {
	l.mu.Lock()
	all := slices.SortedFunc(maps.Keys(l.seen), func(a, b matter) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.reason, b.reason))
	})
	l.mu.Unlock()
	for _, m := range all {
		l.flush(m)
	}
}

func (l *eventLog) observe(e Event) {
	switch e.(type) {
	case Handled, Operated: // many, and nothing that happened to a message
		return
	}
	if s, ok := e.(StateChanged); ok && s.State == Stopped {
		l.flushAll()
	}
	level := levelOf(e)
	if level < l.log.GetLevel() || !l.allow(e, level, time.Now()) {
		return
	}
	fields(l.log.WithLevel(level).Str(eventField, e.Name()), e).Send()
}

// levelOf: error needs somebody, warn may, info tells.
func levelOf(e Event) zerolog.Level {
	switch e := e.(type) {
	case DeadLetterDelayed, Stuck, Panicked:
		return zerolog.ErrorLevel
	case Failed, DeadLettered, Lost, RetryPublishFailed, LaneFull, Unordered, DestinationMissing, DestinationLossy:
		return zerolog.WarnLevel
	case SourceEvent:
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
	case SourceEvent:
		return sourceFields(z, e)
	case Failed:
		return failedFields(z, e)
	case DeadLettered:
		return failedFields(z, e.Failed).Str("to", e.Topic).Int64("took_ms", e.Took.Milliseconds())
	case RetryPublished:
		return failedFields(z, e.Failed).Str("to", e.Topic)
	case RetryPublishFailed:
		return stack(at(z, e.Message).Str("to", e.Topic).Err(e.Err), e.Err)
	case DestinationMissing:
		return stack(z.Str("to", e.Topic).Err(e.Err), e.Err)
	case DestinationLossy:
		return stack(z.Str("to", e.Topic).Err(e.Err), e.Err)
	case DestinationFound:
		return z.Str("to", e.Topic).Bool("created", e.Created)
	case DeadLetterDelayed:
		return stack(at(z, e.Message).Err(e.Err).Bool("refused", e.Refused).Int64("delay_ms", e.Delay.Milliseconds()), e.Err)
	case Skipped:
		return at(z, e.Message).Str("reason", e.Reason)
	case LaneFull:
		if z = z.Int("waiting", e.Waiting); e.First != nil {
			return at(z, e.First)
		}
		if z = z.Str("topic", e.Topic); e.Partition >= 0 {
			z = z.Int32("partition", e.Partition)
		}
		return z
	case Unordered:
		return at(z, e.Message)
	case GivenBack:
		return z.Int("messages", e.N).Str("reason", e.Reason)
	case Lost:
		return z.Int("messages", e.N).Err(e.Err)
	case Scaled:
		o := e.Observation
		return z.Int("from", e.From).Int("to", e.Target).Str("reason", string(e.Reason)).Str("why", e.Why()).Int("backlog",
			o.Backlog).Int("idle", o.Idle).Int("busy", o.Busy).
			Int("min", o.Min).Int("max", o.Max)
	case Stuck:
		return at(within(z, e.Context), e.Message).Int64("running_ms", e.For.Milliseconds()).Bool("replaced", e.Replaced).Str("stack",
			e.Stack)
	case Panicked:
		return z.Str("in", e.In).Err(e.Err).Bytes("stack", e.Err.Stack)
	case Drained:
		return z.Int64("took_ms", e.Took.Milliseconds()).Int("stuck", e.Stuck)
	}
	return z
}

// within gives the logger's hooks the values of a call's context: one of package consumer/tracing writes the trace.
func within(z *zerolog.Event, ctx context.Context) *zerolog.Event {
	if ctx == nil {
		return z
	}
	return z.Ctx(ctx)
}

func at(z *zerolog.Event, m *Message) *zerolog.Event {
	z = z.Str("topic", m.Topic)
	if m.Partition >= 0 {
		z = z.Int32("partition", m.Partition)
	}
	if m.Offset >= 0 {
		z = z.Int64("offset", m.Offset)
	}
	if m.ID() != "" {
		z = z.Str("id", m.ID())
	}
	return z.Int32("attempt", m.Attempt)
}

func failedFields(z *zerolog.Event, e Failed) *zerolog.Event {
	z = at(within(z, e.Context), e.Message).Err(e.Err).Str("class", e.Class).Int32("runs", e.Runs).Stringer("verdict", e.Verdict)
	if e.Verdict == VerdictRetry {
		z = z.Int64("delay_ms", e.Delay.Milliseconds())
	}
	if e.Exhausted {
		z = z.Bool("exhausted", true)
	}
	return stack(z, e.Err)
}

// stack adds that of a panic, where err is one.
func stack(z *zerolog.Event, err error) *zerolog.Event {
	if p, ok := panicOf(err); ok {
		z = z.Bytes("stack", p.Stack)
	}
	return z
}

func sourceFields(z *zerolog.Event, e SourceEvent) *zerolog.Event {
	if e.Retries {
		z = z.Bool("retries", true)
	}
	if e.Claim != nil {
		z = z.Str("topic", e.Claim.Topic)
		if e.Claim.Partition >= 0 {
			z = z.Int32("partition", e.Claim.Partition)
		}
	}
	if e.Kind == broker.Gap && (e.N > 0 || e.From > 0) || e.Kind == broker.Stalled {
		z = z.Int64("from", e.From)
	}
	if e.N > 0 { // less is not known
		z = z.Int64("messages", e.N)
	}
	if e.Kind == broker.Notice && e.Err != nil {
		return z.Str("notice", e.Err.Error())
	}
	switch {
	case e.Err == nil, e.Kind == broker.Ended && errors.Is(e.Err, broker.ErrClosed): // every stop ends claims so, and is no error
		return z
	case e.Kind == broker.Ended && errors.Is(e.Err, broker.ErrRevoked): // nor is a rebalance
		return z.Str("reason", "revoked")
	}
	return z.Err(e.Err)
}
