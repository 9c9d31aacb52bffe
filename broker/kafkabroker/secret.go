package kafkabroker

import "log/slog"

// A Secret is a string that no formatting verb, no logger and no encoder prints.
type Secret string

const redacted = "***"

// String returns "***", or "" when there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// MarshalText is String, for JSON, YAML and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, for log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
