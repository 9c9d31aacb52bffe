package natsbroker

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/dialer"
	"github.com/longshoremq/longshore/internal/plaintext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Connection says where the servers are and who we are. At most one of user and password, Token, NKeySeedFile and CredsFile.
type Connection struct {
	// URLs are the servers, as nats://host:port, tls://host:port, ws:// or wss://. Defaults to nats://127.0.0.1:4222.
	// A user and password may stand in a URL; they are not printed.
	URLs []string
	// Name is what the server shows for this connection. Defaults to "longshore".
	Name string

	// TLS settings. The zero value uses TLS where the URL or the server says so, with the system's roots.
	TLS TLS

	// User and Password log in by name.
	User     string
	Password broker.Secret
	// Token logs in by a shared token.
	Token broker.Secret
	// NKeySeedFile is a file with an NKey user seed.
	NKeySeedFile string
	// CredsFile is a .creds file: a user's JWT and seed.
	CredsFile string
	// PlaintextAuth allows a password or a token without TLS to a host that is not this machine: one of URLs, or one that a server
	// names as another of its cluster. Set it only on a network that you trust. Defaults to false.
	PlaintextAuth bool

	// DialTimeout bounds one attempt to connect. Defaults to 5 s.
	DialTimeout time.Duration
	// ReconnectWait is the pause after the first failed attempt; it doubles, with jitter, up to MaxReconnectWait. Attempts never
	// end. Defaults to 100 ms.
	ReconnectWait time.Duration
	// MaxReconnectWait defaults to 5 s.
	MaxReconnectWait time.Duration
	// PingInterval is how often the client asks the server for a sign of life. Two unanswered drop the connection. Defaults to 20 s.
	PingInterval time.Duration

	// dial is a test's; see package internal/dialer.
	dial dialer.Func
}

// TLS is how the server is checked and who we are to it. The least version is TLS 1.2.
type TLS struct {
	// Enabled demands TLS although the URL says nats://. It is implied by the other fields. Defaults to false.
	Enabled bool
	// CAFile is a PEM file of certificate authorities. Defaults to the system's.
	CAFile string
	// CertFile and KeyFile are our certificate, for mutual TLS. They are read again at each connect, so they can be renewed.
	CertFile string
	KeyFile  string
	// ServerName is the name that the server's certificate must carry. Defaults to the URL's host.
	ServerName string
	// HandshakeFirst starts TLS before the server has said anything, for servers so configured. Defaults to false.
	HandshakeFirst bool
}

func (t TLS) wanted() bool {
	return t.Enabled || t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != "" || t.HandshakeFirst
}

// Config is a JetStream source: one durable pull consumer on one stream.
type Config struct {
	Connection

	// Stream is the stream's name. Required.
	Stream string
	// Consumer is the durable consumer's name. Processes with the same one share its messages. Required.
	Consumer string
	// Domain is the JetStream domain, where it is not the connection's own. Defaults to none.
	Domain string

	// Subjects are the consumer's filter. Defaults to the whole stream.
	Subjects []string
	// KeyHeader is the header whose value is a message's key, for producers that are not longshore. Defaults to where longshore's
	// publisher writes it.
	KeyHeader string
	// KeyToken takes a message's key from its subject instead: the first token is 1, the last one -1. A subject that has not so many
	// gives none. Defaults to 0: from the header.
	KeyToken int
	// Deliver is where a new consumer starts. Defaults to jetstream.DeliverAllPolicy.
	Deliver jetstream.DeliverPolicy
	// StartSequence goes with jetstream.DeliverByStartSequencePolicy.
	StartSequence uint64
	// StartTime goes with jetstream.DeliverByStartTimePolicy.
	StartTime time.Time
	// AckWait is after how long without a sign the server gives a message to another. It is extended while the process lives and is
	// connected, so it is the time that a crash costs. Defaults to 30 s.
	AckWait time.Duration
	// MaxAckPending bounds what all processes together have unsettled, waiting retries included. Make it larger than the sum of
	// their budgets. Defaults to 20,000.
	MaxAckPending int
	// Bind uses an existing consumer and never creates one. Defaults to false.
	Bind bool
	// CreateStream creates the stream when there is none of that name; its Name may be empty. An existing stream is never changed.
	// Defaults to nil: the stream must exist.
	CreateStream *jetstream.StreamConfig
	// Missing is what Open does where there is no such stream and none is created: "wait" for it, with a Warning, or "stop", with an
	// error. Defaults to wait.
	Missing string
	// Recreate goes on after the consumer or stream was deleted or made anew: with a Gap event and a new claim. On the same stream
	// it resumes after the last known ack floor. Defaults to false: Receive then returns an error.
	Recreate bool

	// MaxHold is how long one message is extended, from receipt. After it the server gives the message to another. Change it when
	// handlers need longer. Defaults to 1 h.
	MaxHold time.Duration
	// RevokeWait is how long running handlers may go on when another process was pinned instead of this one, which happens with
	// broker.Options.Ordered only: after a restart of the server, for example. Defaults to 15 s.
	RevokeWait time.Duration
	// Heartbeat is how often the server must show that it still knows our pull; two missed ones and we ask anew. Defaults to 5 s.
	Heartbeat time.Duration
	// Poll is how often lag is asked for, and whether the consumer is still the same. Defaults to 2 s.
	Poll time.Duration
	// Finished is how many settled messages are remembered, 16 bytes each, to ack again what comes again because its ack was lost.
	// Defaults to 65,536.
	Finished int
}

// Defaults of Config and Connection.
const (
	DefaultAckWait       = 30 * time.Second
	DefaultMaxAckPending = 20_000
	DefaultMaxHold       = time.Hour
	DefaultRevokeWait    = 15 * time.Second
	DefaultHeartbeat     = 5 * time.Second
	DefaultPoll          = 2 * time.Second
	DefaultFinished      = 1 << 16
)

func (c Connection) withDefaults() Connection {
	if len(c.URLs) == 0 {
		c.URLs = []string{nats.DefaultURL}
	}
	orString(&c.Name, "longshore")
	orDuration(&c.DialTimeout, 5*time.Second)
	orDuration(&c.ReconnectWait, 100*time.Millisecond)
	orDuration(&c.MaxReconnectWait, 5*time.Second)
	orDuration(&c.PingInterval, 20*time.Second)
	return c
}

func (c Config) withDefaults() Config {
	if c.Missing == "" {
		c.Missing = "wait"
	}
	c.Connection = c.Connection.withDefaults()
	orDuration(&c.AckWait, DefaultAckWait)
	orDuration(&c.MaxHold, DefaultMaxHold)
	orDuration(&c.RevokeWait, DefaultRevokeWait)
	orDuration(&c.Heartbeat, DefaultHeartbeat)
	orDuration(&c.Poll, DefaultPoll)
	if c.MaxAckPending == 0 {
		c.MaxAckPending = DefaultMaxAckPending
	}
	if c.Finished == 0 {
		c.Finished = DefaultFinished
	}
	if c.CreateStream != nil {
		sc := *c.CreateStream
		orString(&sc.Name, c.Stream)
		c.CreateStream = &sc
	}
	return c
}

func orString(s *string, d string) {
	if *s == "" {
		*s = d
	}
}

func orDuration(t *time.Duration, d time.Duration) {
	if *t == 0 {
		*t = d
	}
}

// A findings list collects what is wrong with a configuration, each naming its field.
type findings struct{ errs []error }

func (f *findings) add(format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("natsbroker: "+format, args...))
}

func (f *findings) positive(field string, d time.Duration) {
	if d <= 0 {
		f.add("%s is %v: it must be positive", field, d)
	}
}

func (f *findings) name(field, s string) {
	switch {
	case s == "":
		f.add("%s is empty", field)
	case strings.ContainsAny(s, ".*> \t\r\n/\\"):
		f.add("%s is %q: it may not contain dots, wildcards, blanks or slashes", field, s)
	}
}

func (c Connection) validate(f *findings) {
	for i, u := range c.URLs {
		c.validateURL(f, i, u)
	}
	methods := 0
	for _, used := range []bool{c.User != "" || !c.Password.IsZero(), !c.Token.IsZero(), c.NKeySeedFile != "", c.CredsFile != ""} {
		if used {
			methods++
		}
	}
	if methods > 1 {
		f.add("User and Password, Token, NKeySeedFile, CredsFile: more than one is set")
	}
	if !c.Password.IsZero() && c.User == "" {
		f.add("Password is set and User is empty")
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		f.add("TLS.CertFile is %q and TLS.KeyFile is %q: set both or none", c.TLS.CertFile, c.TLS.KeyFile)
	}
	f.positive("DialTimeout", c.DialTimeout)
	f.positive("ReconnectWait", c.ReconnectWait)
	f.positive("PingInterval", c.PingInterval)
	if c.MaxReconnectWait < c.ReconnectWait {
		f.add("MaxReconnectWait is %v: it is less than ReconnectWait, %v", c.MaxReconnectWait, c.ReconnectWait)
	}
}

func (c Connection) validateURL(f *findings, i int, raw string) {
	if !strings.Contains(raw, "://") {
		raw = "nats://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil { // its text repeats the URL, which may hold a password
		f.add("URLs[%d] cannot be read as a URL", i)
		return
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "" { // it may be a password, behind a slip of the pen
		f.add("URLs[%d] has something behind its host: want nats://host:port, and in a password %%2F for /, %%3F for ?, %%23 for #", i)
		return
	}
	secure := c.TLS.wanted()
	switch u.Scheme {
	case "tls", "wss":
		secure = true
	case "nats", "ws":
	default:
		f.add("URLs[%d] is %s: the scheme must be nats, tls, ws or wss", i, u.Redacted())
	}
	if u.Hostname() == "" {
		f.add("URLs[%d] is %s: it names no host", i, u.Redacted())
		return
	}
	open := !c.Password.IsZero() || !c.Token.IsZero() || u.User != nil
	if open && !secure && !c.PlaintextAuth && plaintext.Exposed(u.Hostname()) {
		f.add("URLs[%d] is %s: a password or token would go there without TLS; use tls:// or set PlaintextAuth", i, u.Redacted())
	}
}

func (c Config) validate() error {
	var f findings
	c.Connection.validate(&f)
	f.name("Stream", c.Stream)
	f.name("Consumer", c.Consumer)
	for i, s := range c.Subjects {
		if s == "" || strings.ContainsAny(s, " \t\r\n") {
			f.add("Subjects[%d] is %q: it is no subject", i, s)
		}
	}
	if c.Missing != "wait" && c.Missing != "stop" {
		f.add("Missing is %q: it must be wait or stop", c.Missing)
	}
	if c.KeyHeader != "" && c.KeyToken != 0 {
		f.add("KeyHeader is %q and KeyToken is %d: set one of them", c.KeyHeader, c.KeyToken)
	}
	f.positive("MaxHold", c.MaxHold)
	f.positive("RevokeWait", c.RevokeWait)
	f.positive("Poll", c.Poll)
	if c.AckWait < 20*time.Millisecond {
		f.add("AckWait is %v: it must be at least 20ms", c.AckWait)
	}
	if c.Heartbeat < 100*time.Millisecond {
		f.add("Heartbeat is %v: the server allows no less than 100ms", c.Heartbeat)
	}
	if c.MaxAckPending < -1 {
		f.add("MaxAckPending is %d: it must be positive, or -1 for no bound", c.MaxAckPending)
	}
	if c.Finished < 0 {
		f.add("Finished is %d: it is negative", c.Finished)
	}
	c.validateStart(&f)
	return errors.Join(f.errs...)
}

func (c Config) validateStart(f *findings) {
	if (c.StartSequence != 0) != (c.Deliver == jetstream.DeliverByStartSequencePolicy) {
		f.add("StartSequence is %d and Deliver is %v: they go together", c.StartSequence, c.Deliver)
	}
	if !c.StartTime.IsZero() != (c.Deliver == jetstream.DeliverByStartTimePolicy) {
		f.add("StartTime is %v and Deliver is %v: they go together", c.StartTime, c.Deliver)
	}
	if c.Bind && c.Recreate {
		f.add("Bind and Recreate are both set: a consumer that is never created cannot be created again")
	}
	if c.CreateStream != nil && c.CreateStream.Name != c.Stream {
		f.add("CreateStream.Name is %q and Stream is %q", c.CreateStream.Name, c.Stream)
	}
}
