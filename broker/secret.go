package broker

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/longshoremq/longshore/internal/namedfile"
)

// A Secret is a string that no formatting verb, no encoder and no logger prints: they all get "***", or nothing where there is no
// secret. The zero value is empty. Its content lies behind a pointer because fmt reads the unexported fields of a struct without
// asking their methods. Copies of a Secret are one: what one of them reads from its file, all have. All but UnmarshalText is
// safe for concurrent use.
type Secret struct{ kept *kept }

// kept is what a secret holds, and the file it came from, where that can be read again.
type kept struct {
	content atomic.Pointer[string]
	file    string
}

// NewSecret makes a secret of s.
func NewSecret(s string) Secret {
	if s == "" {
		return Secret{}
	}
	k := &kept{}
	k.content.Store(&s)
	return Secret{k}
}

// SecretFile makes a secret of what a file holds, without its line's end. The adapters of this module read it again at each login
// (Read), so it can be replaced while they run. A pipe is read once. It is an error, with the file's name, where it cannot be
// read, is empty, or is anything else than one line of at most 64 KiB.
func SecretFile(name string) (Secret, error) {
	k, read := &kept{file: name}, namedfile.Read
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		k.file, read = "", onceRead
	}
	content, err := line(name, read)
	if err != nil {
		return Secret{}, err
	}
	k.content.Store(&content)
	return Secret{k}, nil
}

func onceRead(name string) ([]byte, error) { return namedfile.Once(name, namedfile.Most) }

// line is what a file holds, without its line's end.
func line(name string, read func(string) ([]byte, error)) (string, error) {
	content, err := read(name)
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(string(content), "\r\n")
	switch {
	case text == "":
		return "", errors.New(name + " is empty")
	case len(text) > maxSecret:
		return "", fmt.Errorf("%s has %d bytes, want at most %d: it is no password or token", name, len(text), maxSecret)
	case strings.HasPrefix(text, "\ufeff"):
		return "", errors.New(name + " begins with a byte order mark, which would be part of it: write it without")
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }):
		return "", errors.New(name + " has a line break or another control character in it: want one line")
	}
	return text, nil
}

// maxSecret is how many bytes a password or a token has at most; those that are signed have some thousands.
const maxSecret = 64 << 10

// Read returns the content as it is now: that of SecretFile is read again, and Reveal returns it from then on. It is an error,
// with the file's name, where SecretFile is one; Reveal then returns what it was before.
func (s Secret) Read() (string, error) {
	if !s.Rereads() {
		return s.Reveal(), nil
	}
	content, err := line(s.kept.file, namedfile.Read)
	if err == nil {
		s.kept.content.Store(&content)
	}
	return content, err
}

// Rereads says whether Read reads a file, so that what it returns may change.
func (s Secret) Rereads() bool { return s.kept != nil && s.kept.file != "" }

// Reveal returns the content; that of SecretFile as it was read last.
func (s Secret) Reveal() string {
	if s.kept == nil {
		return ""
	}
	return *s.kept.content.Load()
}

// IsZero says whether there is none.
func (s Secret) IsZero() bool { return s.kept == nil }

// String returns "***", or "" when there is no secret.
func (s Secret) String() string {
	if s.kept == nil {
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
