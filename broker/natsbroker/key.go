package natsbroker

import (
	"encoding/base64"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// key returns a message's key as the configuration says; nil: it has none.
func (c *Config) key(m *nats.Msg) []byte {
	switch {
	case c.KeyToken != 0:
		return subjectToken(m.Subject, c.KeyToken)
	case c.KeyHeader != "" && c.KeyHeader != broker.HeaderKey: // that is the default's, which has another beside it
		if vs := m.Header[c.KeyHeader]; len(vs) > 0 {
			return []byte(vs[len(vs)-1])
		}
		return nil
	}
	return keyOf(m.Header)
}

// subjectToken returns the n-th token of a subject, counted from 1, or from -1 at its end; nil: it has not so many.
func subjectToken(subject string, n int) []byte {
	count := strings.Count(subject, ".") + 1
	if n < 0 {
		n += count + 1
	}
	if n < 1 || n > count {
		return nil
	}
	for range n - 1 {
		_, subject, _ = strings.Cut(subject, ".")
	}
	token, _, _ := strings.Cut(subject, ".")
	return []byte(token)
}

// keyOf returns the key that a producer wrote into the headers, or nil. A malformed one counts as none.
func keyOf(h nats.Header) []byte {
	if vs := h[broker.HeaderKey]; len(vs) > 0 {
		return []byte(vs[len(vs)-1])
	}
	if vs := h[headerKeyBase64]; len(vs) > 0 {
		if k, err := base64.StdEncoding.DecodeString(vs[len(vs)-1]); err == nil {
			return k
		}
	}
	return nil
}
