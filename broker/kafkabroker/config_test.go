package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/longshoremq/longshore/broker"
)

// Two processes of different groups never have one transactional id: each would fence the other, for ever.
func TestTransactionalIDs(t *testing.T) {
	had := map[string]Config{}
	for _, c := range []Config{
		{Group: "orders", InstanceID: "eu.1"}, {Group: "orders.eu", InstanceID: "1"}, {Group: "orders.eu", InstanceID: "1%2E2"},
		{Group: "orders.eu", InstanceID: "1.2"}, {Group: "orders.eu.1", InstanceID: "2"}, {Group: "orders.eu%2E1", InstanceID: "2"},
	} {
		id := c.transactionalID()
		if of, is := had[id]; is {
			t.Errorf("%s is of %q of %s, and of %q of %s", id, c.InstanceID, c.Group, of.InstanceID, of.Group)
		}
		had[id] = c
		if !strings.HasPrefix(id, c.Group+".") {
			t.Errorf("%s does not begin with the group, %s, which rights are given for", id, c.Group)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	_, err := NewSource(Config{Connection: Connection{Brokers: []string{"nohost"},
		SASL: SASL{Mechanism: "PLAIN", User: "u", Password: broker.NewSecret("canary-7f3")}},
		HeartbeatInterval: 5 * time.Second, SessionTimeout: 6 * time.Second, RevokeWait: time.Hour, Balancer: "best", FetchBytes: -1,
		CommitMessages: -1, OutOfRange: "perhaps", Start: Start{At: "time"}})
	if err == nil {
		t.Fatal("a configuration full of mistakes was taken")
	}
	for _, field := range []string{"Brokers[0]", "Group", "Topics", "HeartbeatInterval", "RevokeWait", "Balancer", "FetchBytes",
		"CommitMessages", "OutOfRange", "Start"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in:\n%v", field, err)
		}
	}
	if strings.Contains(err.Error(), "canary-7f3") {
		t.Error("the password is printed")
	}
	cfg := Config{Connection: Connection{Brokers: []string{"broker.example:9092"},
		SASL: SASL{Mechanism: "PLAIN", User: "u", Password: broker.NewSecret("canary-7f3")}}, Group: "g", Topics: []string{"t"}}
	if _, err := NewSource(cfg); err == nil || !strings.Contains(err.Error(), "without TLS") {
		t.Errorf("a password over plaintext: %v", err)
	}
	for _, s := range []string{fmt.Sprint(cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg)} {
		if strings.Contains(s, "canary-7f3") {
			t.Errorf("the password is printed: %s", s)
		}
	}
}

// TestNamesThatFitNoRequest: a name that is longer than a string of the protocol can be is found, and not sent with a length that
// wrapped.
func TestNamesThatFitNoRequest(t *testing.T) {
	long := strings.Repeat("n", 1<<15)
	err := Config{Connection: Connection{Brokers: []string{"h:1"}, ClientID: long}, Group: long, InstanceID: long, Rack: long,
		MemberID: long, Membership: "consumer", Topics: []string{"t"}}.Validate()
	for _, field := range []string{"Group", "InstanceID", "MemberID", "Rack", "ClientID"} {
		if want := field + " has 32768 bytes, want at most 8000"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not said: %.300v", want, err)
		}
	}
	_, err = NewLagView(LagViewConfig{Group: long})
	if want := "Group has 32768 bytes, want at most 8000"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("of a LagView: %s is not said: %.300v", want, err)
	}
}

// TestNamesThatNobodyMeant: a broker takes some of them, and who looks for the group does not find it: what is not UTF-8 comes
// back as something else, and a control character is not seen. A blank name is none to the consumer protocol.
func TestNamesThatNobodyMeant(t *testing.T) {
	for name, want := range map[string]string{
		"a\x00b":    `is "a\x00b": no control characters`,
		"a\n":       `is "a\n": no control characters`,
		"a\xffb":    `is "a\xffb", which is not UTF-8`,
		"   ":       `is "   ", which is blank`,
		"\u00fc🚢 x": "",
	} {
		at := Connection{Brokers: []string{"h:1"}}
		err := Config{Connection: at, Group: name, InstanceID: name, Rack: name, Topics: []string{"t"}}.Validate()
		_, lag := NewLagView(LagViewConfig{Connection: at, Group: name})
		for _, field := range []string{"Group", "InstanceID", "Rack"} {
			if want != "" && (err == nil || !strings.Contains(err.Error(), field+" "+want)) {
				t.Errorf("%q: %s is not said of %s: %v", name, want, field, err)
			}
		}
		if want == "" && (err != nil || lag != nil) {
			t.Errorf("%q: %v, %v", name, err, lag)
		} else if want != "" && (lag == nil || !strings.Contains(lag.Error(), "Group "+want)) {
			t.Errorf("%q of a LagView: %v", name, lag)
		}
	}
}

// TestAddressesThatNobodyHas: a blank in a host, as a list cut at its commas has it, and the port 0 are found, with their index,
// and not dialled for ever.
func TestAddressesThatNobodyHas(t *testing.T) {
	for _, address := range []string{"", " ", " :9092", " broker.example:9092", "broker.example :9092", "broker.example:9092 ",
		"broker.example:0"} {
		err := Config{Connection: Connection{Brokers: []string{"h:1", address}}, Group: "g", Topics: []string{"t"}}.Validate()
		if want := fmt.Sprintf("Brokers[1] is %q, want host:port", address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestCredentialsInAnAddress: they belong into SASL. No error shows an address that has some, whatever else is wrong with it.
func TestCredentialsInAnAddress(t *testing.T) {
	for _, address := range []string{"u:canary-7f3@broker.example:9092", "canary-7f3@broker.example:9092",
		"u:canary-7f3@broker.example", "kafka://u:canary-7f3@broker.example:9092"} {
		at := Connection{Brokers: []string{"127.0.0.1:9092", address}}
		_, source := NewSource(Config{Connection: at, Group: "g", Topics: []string{"t"}})
		_, publisher := NewPublisher(PublisherConfig{Connection: at})
		_, admin := NewAdmin(at)
		_, lag := NewLagView(LagViewConfig{Connection: at, Group: "g"})
		_, log := NewLogView(LogViewConfig{Connection: at})
		for _, err := range []error{source, publisher, admin, lag, log} {
			if err == nil || !strings.Contains(err.Error(), "Brokers[1] has a user or a password in it") ||
				strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %v", address, err)
			}
		}
	}
}

// TestPasswordInTheClear: no login goes to another host without TLS, unless that is allowed. What SCRAM sends can be attacked
// offline by who reads it, and its messages be changed by who stands between.
func TestPasswordInTheClear(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		login := SASL{Mechanism: mechanism, User: "u", Password: broker.NewSecret("canary-7f3")}
		allowed := login
		allowed.PlaintextAuth = true
		for _, tc := range []struct {
			name    string
			c       Connection
			refused bool
		}{
			{"another host", Connection{Brokers: []string{"127.0.0.1:9092", "broker.example:9092"}, SASL: login}, true},
			{"another host, allowed", Connection{Brokers: []string{"broker.example:9092"}, SASL: allowed}, false},
			{"another host, TLS", Connection{Brokers: []string{"broker.example:9092"}, SASL: login, TLS: TLS{Enabled: true}}, false},
			{"this host", Connection{Brokers: []string{"127.0.0.1:9092", "localhost:9092", "[::1]:9092"}, SASL: login}, false},
		} {
			_, err := NewSource(Config{Connection: tc.c, Group: "g", Topics: []string{"t"}})
			if refused := err != nil && strings.Contains(err.Error(), "broker.example") &&
				strings.Contains(err.Error(), "without TLS"); refused != tc.refused || err != nil && !refused {
				t.Errorf("%s, %s: %v", mechanism, tc.name, err)
			}
		}
	}
}

// TestStartTime: Kafka takes times before 1970 for other things: -1 for the end, -2 for the start.
func TestStartTime(t *testing.T) {
	for _, tc := range []struct {
		at      time.Time
		refused bool
	}{
		{time.UnixMilli(-1), true}, {time.UnixMilli(-2), true}, {time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), true}, {time.UnixMilli(0),
			false}, {time.Now(), false},
	} {
		_, err := NewSource(Config{Group: "g", Topics: []string{"t"}, Start: Start{At: "time", Time: tc.at}})
		if refused := err != nil && strings.Contains(err.Error(), "Start") &&
			strings.Contains(err.Error(), "1970"); refused != tc.refused || err != nil && !refused {
			t.Errorf("%v: %v", tc.at, err)
		}
	}
}

// TestUnusablePassword: what SCRAM cannot take for a password is refused by its field's name, and not shown.
func TestUnusablePassword(t *testing.T) {
	_, err := NewSource(Config{Connection: Connection{SASL: SASL{Mechanism: "SCRAM-SHA-256", User: "u",
		Password: broker.NewSecret("canary-\x00\u200e\ufffe")}}, Group: "g", Topics: []string{"t"}})
	if err == nil || !strings.Contains(err.Error(), "SASL has a user or a password") || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %v, want SASL named, and neither shown", err)
	}
}

// TestLogin proves that SASL works, that a wrong password is an error at once, and that neither errors nor events nor printed
// values show it (b06).
func TestLogin(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser(mechanism, "admin", "canary-7f3"))
			cfg := Config{Connection: Connection{Brokers: c.ListenAddrs(),
				SASL: SASL{Mechanism: mechanism, User: "admin", Password: broker.NewSecret("canary-7f3")}}, Group: "g", Topics: []string{"t"}}
			r := startRunner(t, cfg)
			eventually(t, "it has a claim", func() bool { _, ok := r.event(broker.Assigned, ""); return ok })
			cfg.SASL.Password = broker.NewSecret("canary-wrong")
			s, err := NewSource(cfg)
			if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1},
				Observe: func(e broker.Event) { fmt.Fprintf(&said, "%+v\n", e) }})
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a wrong password: %v, want an error at once", err)
			}
			_ = s.Close(ctx)
			fmt.Fprintf(&said, "%v\n%+v\n%#v\n%+v\n%#v", err, cfg, cfg, s, s)
			r.mu.Lock()
			fmt.Fprintf(&said, "%+v", r.events)
			r.mu.Unlock()
			if strings.Contains(said.String(), "canary") {
				t.Errorf("a password is printed:\n%s", said.String())
			}
		})
	}
}

// TestLoginByFile: a password of a file that is wrong at the start is looked at for a second time, for it may be about to be
// replaced. If it is no better, that is an error, also where another broker is away.
func TestLoginByFile(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "admin", "right"))
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away.Close()
	for name, brokers := range map[string][]string{
		"one broker": c.ListenAddrs()[:1], "one away": {away.Addr().String(), c.ListenAddrs()[0]}} {
		for _, replaced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/replaced %v", name, replaced), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "password")
				write := func(content string) {
					if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
						t.Error(err)
					}
				}
				write("wrong")
				password, err := broker.SecretFile(file)
				if err != nil {
					t.Fatal(err)
				}
				s, err := NewSource(Config{Connection: Connection{Brokers: brokers, SASL: SASL{Mechanism: "PLAIN", User: "admin",
					Password: password}}, Group: "g", Topics: []string{"t"}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				defer func() { _ = s.Close(ctx) }()
				downs := 0
				_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(e broker.Event) {
					if downs++; e.Kind == broker.Down && replaced {
						write("right")
					}
				}})
				switch {
				case replaced && err != nil:
					t.Errorf("the right one came too late: %v", err)
				case !replaced && (codeOf(err) != kafka.SASLAuthenticationFailed || ctx.Err() != nil || downs == 0):
					t.Errorf("%v, after %d events, want that the login failed", err, downs)
				}
			})
		}
	}
}

// TestStartText: what is written is what is read.
func TestStartText(t *testing.T) {
	for _, word := range []string{"earliest", "latest", "2026-11-21T15:04:05.5Z"} {
		var s Start
		if err := s.UnmarshalText([]byte(word)); err != nil {
			t.Fatal(err)
		}
		if text, err := s.MarshalText(); err != nil || string(text) != word {
			t.Errorf("%s: %q %v", word, text, err)
		}
	}
}
