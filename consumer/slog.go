package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/rs/zerolog"
)

// SlogLogger makes of a handler of log/slog what Config.Logger wants: who logs with slog passes
// SlogLogger(slog.Default().Handler()). Each event becomes a record, with its name as the message and its fields as attributes,
// in their order. A level that h does not take costs nothing. h is called where the event happens, by several goroutines at once,
// as slog does; what it returns as its error is zerolog's to tell (zerolog.ErrorHandler).
func SlogLogger(h slog.Handler) zerolog.Logger {
	return zerolog.New(slogWriter{h}).Level(zerolog.TraceLevel).Sample(slogLevels{h})
}

// slogLevel is what slog calls a level of zerolog's.
func slogLevel(l zerolog.Level) slog.Level {
	switch l {
	case zerolog.TraceLevel:
		return slog.LevelDebug - 4
	case zerolog.DebugLevel:
		return slog.LevelDebug
	case zerolog.WarnLevel:
		return slog.LevelWarn
	case zerolog.ErrorLevel:
		return slog.LevelError
	case zerolog.FatalLevel, zerolog.PanicLevel:
		return slog.LevelError + 4
	}
	return slog.LevelInfo
}

// slogLevels asks the handler before anything is written.
type slogLevels struct{ h slog.Handler }

func (s slogLevels) Sample(l zerolog.Level) bool {
	return s.h.Enabled(context.Background(), slogLevel(l))
}

// A slogWriter reads the lines that zerolog writes.
type slogWriter struct{ h slog.Handler }

func (w slogWriter) Write(p []byte) (int, error) { return w.WriteLevel(zerolog.NoLevel, p) }

func (w slogWriter) WriteLevel(l zerolog.Level, p []byte) (int, error) {
	if !slogLevels(w).Sample(l) { // who logs has set a sampler of their own
		return len(p), nil
	}
	attrs, err := slogAttrs(p)
	if err != nil { // nothing is lost
		attrs = []slog.Attr{slog.String(zerolog.MessageFieldName, string(bytes.TrimSpace(p)))}
	}
	r := slog.NewRecord(time.Now(), slogLevel(l), "", 0)
	for _, a := range attrs {
		switch a.Key {
		case zerolog.LevelFieldName:
		case zerolog.MessageFieldName:
			r.Message = a.Value.String()
		case eventField:
			if r.Message == "" {
				r.Message = a.Value.String()
			}
			r.AddAttrs(a)
		default:
			r.AddAttrs(a)
		}
	}
	if err := w.h.Handle(context.Background(), r); err != nil {
		return 0, fmt.Errorf("writing a log record: %w", err)
	}
	return len(p), nil
}

// slogAttrs reads an object of JSON.
func slogAttrs(p []byte) ([]slog.Attr, error) {
	d := json.NewDecoder(bytes.NewReader(p))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("reading a log line: it begins with %v: %w", t, err)
	}
	return slogObject(d)
}

// slogObject reads an object whose beginning was read.
func slogObject(d *json.Decoder) (attrs []slog.Attr, err error) {
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := slogValue(d)
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		attrs = append(attrs, slog.Attr{Key: name, Value: v})
	}
	_, err = d.Token()
	return attrs, err
}

func slogValue(d *json.Decoder) (slog.Value, error) {
	t, err := d.Token()
	if err != nil {
		return slog.Value{}, err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			attrs, err := slogObject(d)
			return slog.GroupValue(attrs...), err
		}
		return slogList(d)
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return slog.Int64Value(n), nil
		}
		f, err := t.Float64()
		return slog.Float64Value(f), err
	}
	return slog.AnyValue(t), nil
}

// slogList reads a list whose beginning was read.
func slogList(d *json.Decoder) (slog.Value, error) {
	list := []any{}
	for d.More() {
		v, err := slogValue(d)
		if err != nil {
			return slog.Value{}, err
		}
		list = append(list, v.Any())
	}
	_, err := d.Token()
	return slog.AnyValue(list), err
}
