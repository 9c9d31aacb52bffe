package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

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
// attempt, key_bytes, bytes and sha256 (of the payload, the first 16 hex digits). What a message brings is escaped.
func Log(log zerolog.Logger, c LogConfig) (consumer.Handler, error) {
	if err := c.validate().err(); err != nil {
		return nil, err
	}
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, m *consumer.Message) error {
		if e := log.WithLevel(level); e.Enabled() {
			c.fields(e.Ctx(ctx), m).Send()
		}
		return nil
	}, nil
}

// LogFactory makes Log from options, with the Setup's logger.
func LogFactory(s *Setup, o Options) (consumer.Handler, error) {
	c := DefaultLogConfig()
	if err := decodeChecked(o, &c, func() OptionErrors { return c.validate() }); err != nil {
		return nil, err
	}
	return Log(s.named(), c)
}

// named is the logger with the consumer's name.
func (s *Setup) named() zerolog.Logger {
	log := s.logger()
	if s.Consumer != "" {
		log = log.With().Str("consumer", s.Consumer).Logger()
	}
	return log
}

// LogBatchFactory makes a batch handler that writes the events of Log, each with batch, how many messages the batch has.
func LogBatchFactory(s *Setup, o Options) (consumer.BatchHandler, error) {
	c := DefaultLogConfig()
	if err := decodeChecked(o, &c, func() OptionErrors { return c.validate() }); err != nil {
		return nil, err
	}
	log := s.named()
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, ms []*consumer.Message) error {
		for _, m := range ms {
			if e := log.WithLevel(level); e.Enabled() {
				c.fields(e.Ctx(ctx), m).Int("batch", len(ms)).Send()
			}
		}
		return nil
	}, nil
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
