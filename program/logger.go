package program

import (
	"io"
	"log"
	"strings"
	"time"

	"github.com/longshoremq/longshore/consumer/tracing"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/rs/zerolog"
)

// logger is the parts' own, or else the file's, and the writer that it writes to; nil: who made the parts' own knows it.
func (p Parts) logger(c config.Log, w io.Writer) (zerolog.Logger, io.Writer) {
	if p.Logger != nil {
		return p.Logger.Hook(zerolog.HookFunc(tracing.LogHook)), nil
	}
	w = logWriter(c, w)
	return loggerTo(c, w), w
}

// newLogger writes JSON, one event a line; for people at a terminal, text. The configuration was checked.
func newLogger(c config.Log, w io.Writer) zerolog.Logger { return loggerTo(c, logWriter(c, w)) }

// logWriter takes a logger's events, and writes them as the configuration says.
func logWriter(c config.Log, w io.Writer) io.Writer {
	format := c.Format
	if format == "" || format == "auto" {
		format = "json"
		if isTerminal(w) {
			format = "console"
		}
	}
	if format == "console" {
		return zerolog.ConsoleWriter{
			// what happened comes first, the figures after it
			Out: raw(w), FormatPrepare: visibleEvent, TimeFormat: "15:04:05.000", NoColor: !isTerminal(w),
			PartsOrder:    []string{zerolog.TimestampFieldName, zerolog.LevelFieldName, eventField, zerolog.MessageFieldName},
			FieldsExclude: []string{eventField},
		}
	}
	return visible{out: raw(w)}
}

// loggerTo is the logger of a logWriter.
func loggerTo(c config.Log, w io.Writer) zerolog.Logger {
	level := zerolog.InfoLevel
	if c.Level != "" {
		level, _ = zerolog.ParseLevel(c.Level)
	}
	return zerolog.New(w).Level(level).Hook(zerolog.HookFunc(stamp), zerolog.HookFunc(tracing.LogHook))
}

// eventField has the name of what happened.
const eventField = "event"

// stamp writes the time with milliseconds. What zerolog has for it is a variable of the whole process, which may be a user's.
func stamp(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format("2006-01-02T15:04:05.000Z07:00"))
}

// adoptLog sends what libraries write to Go's standard log, as net/http does of a server that answers without being asked, to l
// until the end is called. That log is one for the process.
func adoptLog(l zerolog.Logger) (end func()) {
	out, flags, prefix := log.Writer(), log.Flags(), log.Prefix()
	log.SetOutput(logLines{l})
	log.SetFlags(0)
	log.SetPrefix("")
	return func() {
		log.SetOutput(out)
		log.SetFlags(flags)
		log.SetPrefix(prefix)
	}
}

// logLines makes an event of each line.
type logLines struct{ log zerolog.Logger }

func (l logLines) Write(p []byte) (int, error) {
	l.log.Warn().Str("event", "library_log").Msg(strings.TrimSpace(string(p)))
	return len(p), nil
}
