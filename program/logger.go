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
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly}
	}
	level := zerolog.InfoLevel
	if c.Level != "" {
		level, _ = zerolog.ParseLevel(c.Level)
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}
