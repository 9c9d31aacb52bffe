package program

import (
	"io"
	"os"
	"time"

	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// newLogger writes JSON, one event a line; for people at a terminal, text. The configuration was checked.
func newLogger(c config.Log, w io.Writer) zerolog.Logger {
	format := c.Format
	if f, ok := w.(*os.File); format == "" || format == "auto" {
		format = "json"
		if ok && term.IsTerminal(int(f.Fd())) {
			format = "console"
		}
	}
	if format == "console" {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000"}
	}
	level := zerolog.InfoLevel
	if c.Level != "" {
		level, _ = zerolog.ParseLevel(c.Level)
	}
	return zerolog.New(w).Level(level).Hook(zerolog.HookFunc(stamp))
}

// stamp writes the time with milliseconds. What zerolog has for it is a variable of the whole process, which may be a user's.
func stamp(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format("2006-01-02T15:04:05.000Z07:00"))
}
