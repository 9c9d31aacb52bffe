package kafkabroker

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// An expiring is a broker whose logins hold for a time only. As Kafka does, it closes a connection on which anything else than a
// new login comes after that, without an answer.
type expiring struct {
	lifetime time.Duration
	newest   int16 // version of SaslAuthenticate
	logins   int
	password string // of the last one
}

func (m *expiring) serve(conn net.Conn) {
	defer conn.Close()
	ends := time.Time{}
	for {
		var h [12]byte
		if _, err := io.ReadFull(conn, h[:]); err != nil {
			return
		}
		key, version := int16(binary.BigEndian.Uint16(h[4:])), int16(binary.BigEndian.Uint16(h[6:]))
		body := make([]byte, binary.BigEndian.Uint32(h[:])-8)
		if _, err := io.ReadFull(conn, body); err != nil {
			return
		}
		if !ends.IsZero() && !time.Now().Before(ends) && key != keySASLHandshake {
			return
		}
		w := writer{}
		switch key {
		case keyAPIVersions:
			w.i16(0)
			w.array(1)
			w.i16(keySASLAuthenticate)
			w.i16(0)
			w.i16(m.newest)
		case keySASLHandshake:
			w.i16(0)
			w.array(0)
			ends = time.Time{}
		case keySASLAuthenticate:
			m.logins++
			_, m.password, _ = strings.Cut(string(body), "\x00u\x00")
			w.i16(0)
			w.i16(-1) // no message
			w.array(0)
			if version >= 1 {
				w.i64(m.lifetime.Milliseconds())
			}
			if m.lifetime > 0 {
				ends = time.Now().Add(m.lifetime)
			}
		}
		b := binary.BigEndian.AppendUint32(nil, uint32(4+len(w.b)))
		if _, err := conn.Write(append(append(b, h[8:]...), w.b...)); err != nil {
			return
		}
	}
}

// connected is a connection to it as the Transport gets one.
func (m *expiring) connected(t *testing.T) (Connection, net.Conn) {
	t.Helper()
	c, cl := m.cluster(t, broker.NewSecret("p"))
	conn, err := cl.transport.Dial(t.Context(), "tcp", "b:9092")
	if err != nil {
		t.Fatal(err)
	}
	return c, conn
}

func (m *expiring) cluster(t *testing.T, password broker.Secret) (Connection, *cluster) {
	t.Helper()
	c := Connection{Brokers: []string{"b:9092"},
		SASL: SASL{Mechanism: "PLAIN", User: "u", Password: password, PlaintextAuth: true}}.withDefaults()
	c.dial = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go m.serve(theirs)
		return ours, nil
	}
	cl, err := c.connect()
	if err != nil {
		t.Fatal(err)
	}
	return c, cl
}

// TestLoginIsRenewed: a broker's login holds for a minute. No request is lost to that, whether the connection is in use all the
// time or was idle for long (KIP-368), and none is made for it where a login holds for ever.
func TestLoginIsRenewed(t *testing.T) {
	for name, tc := range map[string]struct {
		broker expiring
		every  time.Duration
		logins int // in ten minutes
	}{
		"in use":            {expiring{lifetime: time.Minute, newest: 2}, time.Second, 12}, // the first, and one each 54 s
		"idle":              {expiring{lifetime: time.Minute, newest: 1}, 3 * time.Minute, 4},
		"for ever":          {expiring{newest: 2}, 10 * time.Second, 1},
		"a broker too old":  {expiring{newest: 0}, 10 * time.Second, 1},
		"longer than it is": {expiring{lifetime: 1<<63 - 1, newest: 1}, 10 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, conn := tc.broker.connected(t)
				defer conn.Close()
				for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(tc.every) {
					if _, err := c.over(t.Context(), conn, keyHeartbeat, 3, nil); err != nil {
						t.Fatalf("after %v: %v", time.Since(began), err)
					}
				}
				if tc.broker.logins != tc.logins {
					t.Errorf("%d logins, want %d", tc.broker.logins, tc.logins)
				}
			})
		})
	}
}

// TestPasswordIsReadAtEachLogin: a password that is replaced in its file is the one of the next connection, and of the next login
// on one that is there. Where the file cannot be read the error names it, and not the password.
func TestPasswordIsReadAtEachLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "password")
		write := func(content string) {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("canary-1\n")
		password, err := broker.SecretFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := expiring{lifetime: time.Minute, newest: 2}
		c, cl := m.cluster(t, password)
		dial := func(want string) net.Conn {
			conn, err := cl.transport.Dial(t.Context(), "tcp", "b:9092")
			if err != nil || m.password != want {
				t.Fatalf("logged in with %q, want %q: %v", m.password, want, err)
			}
			return conn
		}
		first := dial("canary-1")
		defer first.Close()
		write("canary-2\n")
		defer dial("canary-2").Close()
		write("canary-3\n")
		time.Sleep(time.Minute)
		if _, err := c.over(t.Context(), first, keyHeartbeat, 3, nil); err != nil || m.password != "canary-3" {
			t.Errorf("logged in again with %q: %v", m.password, err)
		}
		write("")
		_, err = cl.transport.Dial(t.Context(), "tcp", "b:9092")
		if err == nil || !strings.Contains(err.Error(), file+" is empty") || strings.Contains(err.Error(), "canary") {
			t.Errorf("an empty file: %v", err)
		}
		write("canary-4")
		defer dial("canary-4").Close()
	})
}
