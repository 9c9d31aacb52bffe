package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"sync"

	"github.com/longshoremq/longshore/consumer"
	"github.com/rs/zerolog"
)

// LogConfig says what Log writes of a message.
type LogConfig struct {
	// Level of the events: trace, debug, info, warn or error. Defaults to info.
	Level string `yaml:"level"`
	// Payload adds the payload's text, escaped, to the events. It may be personal or secret. Defaults to false: length and digest
	// only.
	Payload bool `yaml:"payload"`
	// Key adds the key's text, escaped. Defaults to false: length only.
	Key bool `yaml:"key"`
	// Headers to add, escaped, by name. Defaults to none.
	Headers []string `yaml:"headers"`
	// MaxBytes is how much of a payload, a key and a header's value is written. Defaults to 1024.
	MaxBytes int `yaml:"max_bytes"`
	// Writer gets the events in place of the logger's own writer, and its error is the message's: what could not be written, with
	// the disk full or the pipe closed, is not acked but tried again. Give it the writer that the logger was made with. It is called
	// by several goroutines at once, as that one is. Defaults to the logger's own, whose errors zerolog tells to nobody but its
	// ErrorHandler: the message is acked all the same.
	Writer io.Writer `yaml:"-"`
}

// DefaultLogConfig returns the defaults.
func DefaultLogConfig() LogConfig { return LogConfig{Level: "info", MaxBytes: 1024} }

func (c LogConfig) validate() (errs OptionErrors) {
	switch c.Level {
	case "trace", "debug", "info", "warn", "error":
	default:
		errs.add("level", "wants trace, debug, info, warn or error")
	}
	if c.MaxBytes < 1 {
		errs.add("max_bytes", "is %d, want at least 1", c.MaxBytes)
	}
	return errs
}

// Log returns a handler that writes one event for each message and acks it: event "message" with topic, partition, offset, id,
// attempt, key_bytes, bytes and sha256 (of the payload, the first 16 hex digits). What a message brings is escaped. Set the
// config's Writer, or what cannot be written is acked.
func Log(log zerolog.Logger, c LogConfig) (consumer.Handler, error) {
	w, err := newMessageLog(log, c)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, m *consumer.Message) error { return w.write(ctx, m, 0) }, nil
}

// LogFactory makes Log from options, with the Setup's logger.
func LogFactory(s *Setup, o Options) (consumer.Handler, error) {
	c, err := s.logConfig(o)
	if err != nil {
		return nil, err
	}
	return Log(s.named(), c)
}

// logConfig is what the options say, with the Setup's writer.
func (s *Setup) logConfig(o Options) (LogConfig, error) {
	c := DefaultLogConfig()
	err := decodeChecked(o, &c, func() OptionErrors { return c.validate() })
	c.Writer = s.LogWriter
	return c, err
}

// named is the logger with the consumer's name.
func (s *Setup) named() zerolog.Logger {
	log := s.logger()
	if s.Consumer != "" {
		log = log.With().Str("consumer", s.Consumer).Logger()
	}
	return log
}

// LogBatchFactory makes a batch handler that writes the events of Log, each with batch, how many messages the batch has. Those
// that could not be written are tried again, and the others acked.
func LogBatchFactory(s *Setup, o Options) (consumer.BatchHandler, error) {
	c, err := s.logConfig(o)
	if err != nil {
		return nil, err
	}
	w, err := newMessageLog(s.named(), c)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, ms []*consumer.Message) error {
		errs, failed := make([]error, len(ms)), false
		for i, m := range ms {
			errs[i] = w.write(ctx, m, len(ms))
			failed = failed || errs[i] != nil
		}
		if failed {
			return &consumer.BatchError{Errs: errs}
		}
		return nil
	}, nil
}

// A messageLog writes events of messages, and says which of them could not be written.
type messageLog struct {
	c     LogConfig
	level zerolog.Level
	pens  sync.Pool // of *pen
}

func newMessageLog(log zerolog.Logger, c LogConfig) (*messageLog, error) {
	if err := c.validate().err(); err != nil {
		return nil, err
	}
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		return nil, err
	}
	l := &messageLog{c: c, level: level}
	l.pens.New = func() any {
		p := &pen{log: log}
		if c.Writer != nil {
			p.out = zerolog.MultiLevelWriter(c.Writer)
			p.log = log.Output(p)
		}
		return p
	}
	return l, nil
}

// write writes the event of m; of a batch with its size, else 0.
func (l *messageLog) write(ctx context.Context, m *consumer.Message, batch int) error {
	p, _ := l.pens.Get().(*pen)
	defer l.pens.Put(p)
	e := p.log.WithLevel(l.level)
	if !e.Enabled() {
		return nil
	}
	e = l.c.fields(e.Ctx(ctx), m)
	if batch > 0 {
		e = e.Int("batch", batch)
	}
	p.err = nil
	e.Send()
	if p.err != nil {
		return fmt.Errorf("writing the message's event: %w", p.err)
	}
	return nil
}

// A pen is a logger for one goroutine at a time, and remembers what its last write came to: zerolog tells that to nobody.
type pen struct {
	log zerolog.Logger
	out zerolog.LevelWriter
	err error
}

func (p *pen) Write(b []byte) (int, error) { return p.WriteLevel(zerolog.NoLevel, b) }

func (p *pen) WriteLevel(level zerolog.Level, b []byte) (n int, err error) {
	n, p.err = p.out.WriteLevel(level, b)
	return n, p.err
}

func (c LogConfig) fields(e *zerolog.Event, m *consumer.Message) *zerolog.Event {
	e = e.Str("event", "message").Str("topic", m.Topic)
	if m.Partition >= 0 {
		e = e.Int32("partition", m.Partition)
	}
	if m.Offset >= 0 {
		e = e.Int64("offset", m.Offset)
	}
	if m.ID() != "" {
		e = e.Str("id", m.ID())
	}
	sum := sha256.Sum256(m.Value)
	e = e.Int32("attempt", m.Attempt).Int("key_bytes", len(m.Key)).Int("bytes", len(m.Value)).Str("sha256",
		hex.EncodeToString(sum[:8]))
	if c.Key && m.Key != nil {
		e = e.Bytes("key", c.cut(m.Key))
	}
	for _, name := range c.Headers {
		if v, ok := m.Headers.Get(name); ok {
			e = e.Bytes("header_"+name, c.cut(v))
		}
	}
	if c.Payload {
		e = e.Bytes("payload", c.cut(m.Value))
	}
	return e
}

func (c LogConfig) cut(b []byte) []byte { return b[:min(len(b), c.MaxBytes)] }
