package natsbroker_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// A talker speaks as much of the protocol as a client needs to be connected, and keeps what clients say of themselves.
type talker struct {
	t     *testing.T
	at    string
	names string // of another server that it tells of; empty: of none
	said  chan string

	mu    sync.Mutex
	l     net.Listener
	conns map[net.Conn]bool // nil: down
	wg    sync.WaitGroup
}

func talk(t *testing.T, host, names string) *talker {
	t.Helper()
	f := &talker{t: t, at: net.JoinHostPort(host, "0"), names: names, said: make(chan string, 1000)}
	f.up()
	f.at = f.l.Addr().String()
	t.Cleanup(f.down)
	return f
}

func (f *talker) up() {
	l, err := net.Listen("tcp4", f.at)
	if err != nil {
		f.t.Fatal(err)
	}
	f.l, f.conns = l, map[net.Conn]bool{}
	f.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			if f.conns == nil { // down came between
				_ = c.Close()
			} else {
				f.conns[c] = true
			}
			f.mu.Unlock()
			f.wg.Go(func() { f.serve(c) })
		}
	})
}

func (f *talker) down() {
	_ = f.l.Close()
	f.mu.Lock()
	for c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
	f.mu.Unlock()
	f.wg.Wait()
}

func (f *talker) serve(c net.Conn) {
	info := map[string]any{"server_id": "X", "version": "2.15.0", "proto": 1, "headers": true, "max_payload": 1 << 20}
	if f.names != "" {
		info["connect_urls"] = []string{f.names}
	}
	b, _ := json.Marshal(info)
	_, _ = fmt.Fprintf(c, "INFO %s\r\n", b)
	for lines := bufio.NewScanner(c); lines.Scan(); {
		switch verb, _, _ := strings.Cut(lines.Text(), " "); verb {
		case "CONNECT":
			f.said <- lines.Text()
		case "PING":
			_, _ = c.Write([]byte("PONG\r\n"))
		}
	}
}

// outside is an address of this machine that is not loopback.
func outside(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// A server names others, and a client whose server is gone goes there. The password goes to none of them that could not have been
// configured.
func TestDiscoveredServers(t *testing.T) {
	login := natsbroker.Connection{User: "u", Password: broker.NewSecret(canary)}
	token := natsbroker.Connection{Token: broker.NewSecret(canary)}
	allowed := login
	allowed.PlaintextAuth = true
	for name, c := range map[string]struct {
		connection natsbroker.Connection
		inURL      string
		goes       bool
	}{
		"password": {login, "", false}, "token": {token, "", false}, "allowed": {allowed, "", true},
		"password in the URL": {natsbroker.Connection{}, "u:" + canary + "@", false},
		"token in the URL":    {natsbroker.Connection{}, canary + "@", false},
		"in the URL, allowed": {natsbroker.Connection{PlaintextAuth: true}, "u:" + canary + "@", true},
	} {
		t.Run(name, func(t *testing.T) {
			other := talk(t, outside(t), "")
			first := talk(t, "127.0.0.1", other.at)
			cfg := natsbroker.CoreConfig{Connection: c.connection, Subjects: []string{"s.*"}, Queue: "q"}
			cfg.URLs, cfg.ReconnectWait = []string{"nats://" + c.inURL + first.at}, 20*time.Millisecond
			s := openCoreOf(t, cfg, broker.Budget{Messages: 10, Bytes: 1 << 20})
			first.down()
			if c.goes {
				if line := <-other.said; !strings.Contains(line, canary) {
					t.Errorf("it was said %q, without the password", line)
				}
				return
			}
			eventually(t, "it is told where the password does not go", func() bool {
				for _, e := range s.events.of(broker.Warning) {
					if strings.Contains(e.Err.Error(), other.at) && strings.Contains(e.Err.Error(), "PlaintextAuth") {
						return true
					}
				}
				return false
			})
			first.up() // what is configured is tried on
			eventually(t, "it is connected again", func() bool { return len(s.events.of(broker.Up)) == 2 })
			if n := len(s.events.of(broker.Warning)); n != 1 {
				t.Errorf("it was told %d times", n)
			}
			select {
			case line := <-other.said:
				t.Errorf("it was said %q", line)
			default:
			}
		})
	}
}
