package natsbroker

import (
	"strings"
	"testing"
)

func FuzzStoredHeaders(f *testing.F) {
	f.Add([]byte("NATS/1.0\r\na: 1\r\nb:2 \r\na: 3\r\n\r\n"))
	f.Add([]byte("NATS/1.0 404 No\r\n\r\n"))
	f.Add([]byte(": \r\n:\r\nx"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, h := range storedHeaders(raw) {
			if !validHeaderKey(h.Key) || !intact(string(h.Value)) && !strings.ContainsAny(string(h.Value), "\r\n") {
				t.Errorf("%q has %q: %q", raw, h.Key, h.Value)
			}
		}
	})
}

func TestStoredHeaders(t *testing.T) {
	var got []string
	for _, h := range storedHeaders([]byte("NATS/1.0\r\nz: 1\r\nb:2 \r\nbad key: x\r\nnone\r\nz: a:b\r\n\r\n")) {
		got = append(got, h.Key+"="+string(h.Value))
	}
	if s := strings.Join(got, " "); s != "z=1 b=2 z=a:b" {
		t.Error(s)
	}
}
