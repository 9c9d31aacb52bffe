package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/rs/zerolog"
)

const hostile = "\x1b[2J\x1b]0;title\a\u009b31m\u202e\u2066\U000e0001\r\x7f\xff"

// wantVisible holds what was written to a terminal against characters that are not printed as themselves.
func wantVisible(t *testing.T, what, text string) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		if i := strings.IndexFunc(line, func(r rune) bool { return r != '\t' && !unicode.IsPrint(r) }); i >= 0 ||
			!utf8.ValidString(line) {
			t.Errorf("%s prints %q", what, text)
			return
		}
	}
}

// Errors, whatever is in them, and logs in both formats.
func TestNothingHostileIsPrinted(t *testing.T) {
	var out bytes.Buffer
	for _, err := range []error{errors.New("dialing " + hostile),
		&config.Findings{File: hostile, List: []config.Finding{{Line: 1, Path: hostile, Problem: hostile}}}} {
		out.Reset()
		report(err, visible{out: &out})
		wantVisible(t, "report", out.String())
	}
	for _, format := range []string{"json", "console"} {
		out.Reset()
		log := newLogger(config.Log{Format: format}, visible{out: &out})
		log.Error().Str("event", hostile).Err(errors.New(hostile)).Str(hostile, hostile).Interface("nested",
			map[string]any{hostile: []any{hostile, map[string]any{"a": hostile}}}).Msg(hostile)
		log.Warn().RawJSON("raw", []byte(`"`+"\u009b"+`"`)).Msg("raw")
		wantVisible(t, format, out.String())
		if format == "json" {
			wantJSONLines(t, out.String())
		}
	}
}

// What a command prints passes one place: here the name of a file.
func TestCommandsPrintVisibly(t *testing.T) {
	dir := t.TempDir()
	name := "c\x1b[2J\u009b.yaml"
	writeFile(t, dir, name, "consumers: {o: {source: {nats: {stream: S, subjects: [s], durable: d}}, routes: [{handler: log}]}}")
	out, err := run(t.Context(), "config", "check", filepath.Join(dir, name))
	if err != nil || !strings.Contains(out, "ok; consumers: o") {
		t.Fatal(err, out)
	}
	wantVisible(t, "config check", out)
}

// What net/http writes to Go's log is an event.
func TestLibrariesLogEvents(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		_, _ = io.WriteString(conn, answer)
		_, _ = conn.Read(make([]byte, 1)) // the next request comes by this connection
		_, _ = io.WriteString(conn, answer+answer)
		_, _ = conn.Read(make([]byte, 1024))
	}))
	defer s.Close()
	out := &lockedBuffer{}
	end := adoptLog(newLogger(config.Log{Format: "json"}, out))
	defer end()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for deadline := time.Now().Add(patience); !strings.Contains(out.String(), "library_log"); {
		if time.Now().After(deadline) {
			t.Fatal("net/http has said nothing")
		}
		if r, err := client.Get(s.URL); err == nil {
			r.Body.Close()
		}
	}
	wantJSONLines(t, out.String())
}

// FuzzVisible: what is printed as itself comes through, and JSON says what it said.
func FuzzVisible(f *testing.F) {
	f.Add("plain é 世\n\ttext")
	f.Add(hostile)
	f.Fuzz(func(t *testing.T, s string) {
		var out bytes.Buffer
		n, err := visible{out: &out}.Write([]byte(s))
		if err != nil || n != len(s) {
			t.Fatal(n, err)
		}
		wantVisible(t, "visible", out.String())
		if !strings.ContainsFunc(s, func(r rune) bool {
			return r != '\n' && r != '\t' && !unicode.IsPrint(r) || r == unicode.ReplacementChar
		}) && out.String() != s {
			t.Errorf("%q became %q", s, out.String())
		}
		out.Reset()
		log := zerolog.New(visible{out: &out})
		log.Log().Str("s", s).Send()
		var back struct{ S string }
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.S != strings.ToValidUTF8(s, "�") &&
			!strings.Contains(back.S, "�") {
			t.Errorf("%q came back as %q: %v", s, back.S, err)
		}
	})
}
