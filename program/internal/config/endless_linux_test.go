package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longshoremq/longshore/program/internal/config"
)

// TestEndlessFiles: what has no end, as /dev/zero, is refused before it fills the memory: a configuration, and a secret's file.
func TestEndlessFiles(t *testing.T) {
	t.Parallel()
	const plenty = 32 << 20
	for _, secret := range []bool{false, true} {
		dir := t.TempDir()
		pipe := filepath.Join(dir, "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		name := pipe
		if secret {
			name = filepath.Join(dir, "c.yaml")
			text := strings.Replace(least, "stream:", "user: u, password_file: "+pipe+", stream:", 1)
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		written := make(chan int, 1)
		go func() {
			n := 0
			defer func() { written <- n }()
			w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Close()
			for some := make([]byte, 64<<10); n < plenty && err == nil; n += len(some) {
				_, err = w.Write(some)
			}
		}()
		d, err := config.Load(name, os.LookupEnv)
		if secret && err == nil {
			err = d.Err()
		}
		if err == nil || !strings.Contains(err.Error(), "more than 4194304 bytes") {
			t.Errorf("secret %v: %v", secret, err)
		}
		if n := <-written; n >= plenty {
			t.Errorf("secret %v: all was read, however much there is", secret)
		}
	}
}

// TestPipesAndDevices: what is read at each connect is no pipe, which would keep its reader for ever, and no device.
func TestPipesAndDevices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := writePair(t, dir, "good", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	for _, file := range []string{pipe, "/dev/null"} {
		for _, c := range []struct{ text, field string }{
			{"tls: {ca_file: " + file + "}", "tls.ca_file"},
			{"tls: {cert_file: " + file + ", key_file: " + key + "}", "tls.cert_file"},
			{"tls: {cert_file: " + cert + ", key_file: " + file + "}", "tls.key_file"},
			{"creds_file: " + file, "creds_file"},
			{"nkey_seed_file: " + file, "nkey_seed_file"},
		} {
			got := findings(parse("consumers:\n  orders:\n    routes: [{handler: log}]\n    source:\n      nats: {url: 'tls://h', "+
				"stream: S, durable: d, "+c.text+"}\n", nil))
			want := "c.yaml:5: consumers.orders.source.nats." + c.field + ": " + file + " is a pipe or a device"
			if len(got) != 1 || !strings.HasPrefix(got[0], want) {
				t.Errorf("%s: %q, want %q", c.text, got, want)
			}
		}
	}
}
