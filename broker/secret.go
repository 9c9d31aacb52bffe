package broker

import (
	"fmt"
	"io"
	"log/slog"
)

// A Secret is a string that no formatting verb, no encoder and no logger prints: they all get "***", or nothing where there is no
// secret. The zero value is empty. Its content lies behind a pointer because fmt reads the unexported fields of a struct without
// asking their methods.
type Secret struct{ content *string }

// NewSecret makes a secret of s.
func NewSecret(s string) Secret {
	if s == "" {
		return Secret{}
	}
	return Secret{&s}
}

// Reveal returns the content.
func (s Secret) Reveal() string {
	if s.content == nil {
		return ""
	}
	return *s.content
}

// IsZero says whether there is none.
func (s Secret) IsZero() bool { return s.content == nil }

// String returns "***", or "" when there is no secret.
func (s Secret) String() string {
	if s.content == nil {
		return ""
	}
	return "***"
}

// Format prints String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText is String, for JSON, YAML and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, for log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// UnmarshalText sets the content.
func (s *Secret) UnmarshalText(b []byte) error {
	*s = NewSecret(string(b))
	return nil
}
