package broker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

func TestSecretIsShownOnlyByReveal(t *testing.T) {
	s := broker.NewSecret("canary")
	type inside struct{ hidden broker.Secret }
	for _, v := range []any{s, &s, inside{s}, []broker.Secret{s}, map[string]broker.Secret{"k": s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
			out := fmt.Sprintf(verb, v)
			if strings.Contains(out, "canary") || strings.Contains(strings.ToLower(out), fmt.Sprintf("%x", "canary")) {
				t.Errorf("%s of %T shows it: %s", verb, v, out)
			}
		}
		if js, err := json.Marshal(v); err != nil || strings.Contains(string(js), "canary") {
			t.Errorf("JSON of %T: %s, %v", v, js, err)
		}
	}
	if s.Reveal() != "canary" || s.String() != "***" || s.IsZero() {
		t.Errorf("Reveal %q, String %q, IsZero %v", s.Reveal(), s.String(), s.IsZero())
	}
	var none broker.Secret
	if none.Reveal() != "" || none.String() != "" || !none.IsZero() || broker.NewSecret("") != none {
		t.Error("an empty secret is shown as one")
	}
}

func TestSecretFileIsReadAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "password")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := broker.SecretFile(name); err == nil || !s.IsZero() || !strings.Contains(err.Error(), name) {
		t.Errorf("no file: %v, %v", s, err)
	}
	write("canary-1\r\n")
	s, err := broker.SecretFile(name)
	if err != nil || s.Reveal() != "canary-1" || s.IsZero() || !s.Rereads() {
		t.Fatalf("%q, %v", s.Reveal(), err)
	}
	copied := s
	write("canary-2\n")
	if s.Reveal() != "canary-1" {
		t.Errorf("Reveal reads the file: %q", s.Reveal())
	}
	if now, err := copied.Read(); now != "canary-2" || err != nil || s.Reveal() != "canary-2" {
		t.Errorf("Read %q, %v, Reveal %q", now, err, s.Reveal())
	}
	write("\n")
	if now, err := s.Read(); now != "" || err == nil || err.Error() != name+" is empty" || s.Reveal() != "canary-2" {
		t.Errorf("an empty file: Read %q, %v, Reveal %q", now, err, s.Reveal())
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if now, err := s.Read(); now != "" || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), name) {
		t.Errorf("no file any more: Read %q, %v", now, err)
	}
	if out := fmt.Sprintf("%v %+v %#v", s, &s, struct{ hidden broker.Secret }{s}); strings.Contains(out, "canary") {
		t.Errorf("it is shown: %s", out)
	}
	for _, s := range []broker.Secret{{}, broker.NewSecret("canary")} {
		if now, err := s.Read(); now != s.Reveal() || err != nil || s.Rereads() {
			t.Errorf("no file: Read %q, %v", now, err)
		}
	}
}

// TestSecretFileOfAnotherKind: what is no line of text is no password or token: a file of two, one that an editor wrote a mark
// into, or another file. Neither the error nor the secret shows it.
func TestSecretFileOfAnotherKind(t *testing.T) {
	name := filepath.Join(t.TempDir(), "password")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("canary")
	kept, err := broker.SecretFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		"canary\ncanary\n": "line break", "canary\rcanary": "line break", "\ncanary": "line break", "\ufeffcanary": "byte order mark",
		"can\x00ary": "control character", strings.Repeat("canary", 1<<20/2): "bytes, want at most 65536",
	} {
		write(content)
		s, err := broker.SecretFile(name)
		if err == nil || !s.IsZero() || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "canary") {
			t.Errorf("%.20q: %q, %v, want %q", content, s.Reveal()[:min(20, len(s.Reveal()))], err, want)
		}
		if now, err := kept.Read(); err == nil || now != "" || kept.Reveal() != "canary" {
			t.Errorf("%.20q: read again: %v", content, err)
		}
	}
	for _, content := range []string{" a pass word ", "päss\u00a0wort", strings.Repeat("x", 65536) + "\n"} {
		write(content)
		if s, err := broker.SecretFile(name); err != nil || s.Reveal() != strings.TrimSuffix(content, "\n") {
			t.Errorf("%.20q: %v", content, err)
		}
	}
}
