package natsbroker

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
	"github.com/longshoremq/longshore/internal/dialer"
	"github.com/longshoremq/longshore/internal/natssubject"
	"github.com/longshoremq/longshore/internal/plaintext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Connection says where the servers are and who we are. At most one of user and password, Token, NKeySeedFile and CredsFile.
type Connection struct {
	// URLs are the servers, as nats://host:port, tls://host:port, ws:// or wss://. Defaults to nats://127.0.0.1:4222.
	// A user and password may stand in a URL; they are not printed.
	URLs []string `yaml:"urls" want:"some"`
	// Name is what the server shows for this connection. Defaults to "longshore".
	Name string `yaml:"-"`

	// TLS settings. The zero value uses TLS where the URL or the server says so, with the system's roots.
	TLS TLS `yaml:"tls"`

	// User and Password log in by name. A Password of broker.SecretFile is read again at each connect, so it can be replaced.
	User     string        `yaml:"user"`
	Password broker.Secret `yaml:"password"`
	// Token logs in by a shared token. One of broker.SecretFile is read again at each connect, so it can be replaced.
	Token broker.Secret `yaml:"token"`
	// NKeySeedFile is a file with an NKey user seed. It is read again where a login is refused, so it can be replaced.
	NKeySeedFile string `yaml:"nkey_seed_file" want:"some"`
	// CredsFile is a .creds file: a user's JWT and seed. It is read again at each connect, so it can be replaced.
	CredsFile string `yaml:"creds_file" want:"some"`
	// PlaintextAuth allows a password or a token without TLS to a host that is not this machine: one of URLs, or one that a server
	// names as another of its cluster. Set it only on a network that you trust. Defaults to false.
	PlaintextAuth bool `yaml:"plaintext_auth"`
	// InboxPrefix begins the subjects at which answers of the server come: its deliveries, receipts and confirmations. Give a user
	// one of its own, and the right to subscribe to that and to nothing else, so that no other user can listen in. Defaults to
	// _INBOX, which all users share.
	InboxPrefix string `yaml:"inbox_prefix" want:"some"`

	// DialTimeout bounds one attempt to connect. Defaults to 5 s.
	DialTimeout time.Duration `yaml:"-" want:">0"`
	// ReconnectWait is the pause after the first failed attempt; it doubles, with jitter, up to MaxReconnectWait. Attempts never
	// end. Defaults to 100 ms.
	ReconnectWait time.Duration `yaml:"-" want:">0"`
	// MaxReconnectWait defaults to 5 s.
	MaxReconnectWait time.Duration `yaml:"-"`
	// PingInterval is how often the client asks the server for a sign of life. Two unanswered drop the connection. Defaults to 20 s.
	PingInterval time.Duration `yaml:"-" want:">0"`

	// dial is a test's; see package internal/dialer.
	dial dialer.Func
}

// TLS is how the server is checked and who we are to it. The least version is TLS 1.2.
type TLS struct {
	// Enabled demands TLS although the URL says nats://. It is implied by the other fields. Defaults to false.
	Enabled bool `yaml:"-"`
	// CAFile is a PEM file of certificate authorities. It is read again at each connect, so it can be renewed. Defaults to the
	// system's.
	CAFile string `yaml:"ca_file" want:"some"`
	// CertFile and KeyFile are our certificate, for mutual TLS. They are read again at each connect, so they can be renewed.
	CertFile string `yaml:"cert_file" want:"some"`
	KeyFile  string `yaml:"key_file" want:"some"`
	// ServerName is the name that the server's certificate must carry. Defaults to the URL's host.
	ServerName string `yaml:"server_name" want:"some"`
	// HandshakeFirst starts TLS before the server has said anything, for servers so configured. Defaults to false.
	HandshakeFirst bool `yaml:"handshake_first"`
}

func (t TLS) wanted() bool {
	return t.Enabled || t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != "" || t.HandshakeFirst
}

// Config is a JetStream source: one durable pull consumer on one stream. The tags are the keys of the program's file, and what
// may be set.
type Config struct {
	Connection `yaml:",inline"`

	// Stream is the stream's name. Required.
	Stream string `yaml:"stream"`
	// Consumer is the durable consumer's name. Processes with the same one share its messages. Required.
	Consumer string `yaml:"durable"`
	// Domain is the JetStream domain, where it is not the connection's own. Defaults to none.
	Domain string `yaml:"domain" want:"some"`

	// Subjects are the consumer's filter; none may take all messages of another one. Defaults to the whole stream.
	Subjects []string `yaml:"subjects"`
	// KeyHeader is the header whose value is a message's key, for producers that are not longshore. Defaults to where longshore's
	// publisher writes it.
	KeyHeader string `yaml:"key_header" want:"some"`
	// KeyToken takes a message's key from its subject instead: the first token is 1, the last one -1. A subject that has not so many
	// gives none. Defaults to 0: from the header.
	KeyToken int `yaml:"key_token" want:"1.. or ..-1"`
	// Deliver is where a new consumer starts. A stream that was made while it was waited for, or made anew (Recreate), has nothing
	// from before, and is read from its beginning. Defaults to jetstream.DeliverAllPolicy.
	Deliver jetstream.DeliverPolicy `yaml:"-"`
	// StartSequence goes with jetstream.DeliverByStartSequencePolicy.
	StartSequence uint64 `yaml:"start_sequence" want:"1.."`
	// StartTime goes with jetstream.DeliverByStartTimePolicy.
	StartTime time.Time `yaml:"start_time"`
	// AckWait is after how long without a sign the server gives a message to another. It is extended while the process lives and is
	// connected, so it is the time that a crash costs. Defaults to 30 s.
	AckWait time.Duration `yaml:"ack_wait" want:"20ms.."`
	// MaxAckPending bounds what all processes together have unsettled, waiting retries included. Make it larger than the sum of
	// their budgets. Defaults to 20,000.
	MaxAckPending int `yaml:"max_ack_pending" want:"1.. or -1"`
	// Bind uses an existing consumer and never creates one. Defaults to false.
	Bind bool `yaml:"bind"`
	// CreateStream creates the stream when there is none of that name; its Name may be empty. An existing stream is never changed.
	// Defaults to nil: the stream must exist.
	CreateStream *jetstream.StreamConfig `yaml:"-"`
	// Missing is what Open does where there is no such stream and none is created: "wait" for it, with a Warning, or "stop", with an
	// error. With Recreate it is also what a source does whose stream was deleted, which is Down meanwhile. Defaults to wait.
	Missing string `yaml:"missing" want:"wait|stop"`
	// Recreate goes on after the consumer or stream was deleted or made anew: with a Gap event and a new claim. On the same stream
	// it resumes after the last known ack floor; on one that was restored from an older copy it begins anew. JetStream takes an ack
	// by the message's sequence alone, so an ack that leaves before this process has heard of the new stream may settle, unseen,
	// the message that has the sequence there: stop the consumers before you make a stream anew, or give it a FirstSeq above the
	// old one's. Defaults to false: Receive then returns an error.
	Recreate bool `yaml:"recreate"`
	// Share tells the other processes of the consumer, once a second, that this one is there, so that a limit can be one of all of
	// them together: see Source.Share. Set it in all of them, or the limit is exceeded by those that are not told of. The user has
	// to be allowed to publish and subscribe to longshore.share.STREAM.CONSUMER. Defaults to false.
	Share bool `yaml:"-"`

	// MaxHold is how long one message is extended, from receipt. After it the server gives the message to another. Change it when
	// handlers need longer. Defaults to 1 h.
	MaxHold time.Duration `yaml:"max_hold" want:">0"`
	// RevokeWait is how long running handlers may go on when another process was pinned instead of this one, which happens with
	// broker.Options.Ordered only: after a restart of the server, for example. Defaults to 15 s.
	RevokeWait time.Duration `yaml:"revoke_wait" want:">0"`
	// Heartbeat is how often the server must show that it still knows our pull; two missed ones and we ask anew. Defaults to 5 s.
	Heartbeat time.Duration `yaml:"-" want:"100ms.."`
	// Poll is how often lag is asked for, and whether the consumer is still the same. Defaults to 2 s.
	Poll time.Duration `yaml:"-" want:">0"`
	// Finished is how many settled messages are remembered, 16 bytes each, to ack again what comes again because its ack was lost.
	// Defaults to 65,536.
	Finished int `yaml:"-" want:"0.."`
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

// WithDefaults is c with the defaults of what it does not set, as NewSource has it.
func (c Config) WithDefaults() Config { return c.withDefaults() }

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

// findings is an empty list of them.
func findings() *broker.Findings { return &broker.Findings{Of: "natsbroker"} }

// validateName holds a name of a stream, consumer or queue against what NATS takes.
func validateName(f *broker.Findings, at broker.Field, name string) {
	f.Check(name != "", at, "is missing")
	f.Check(!strings.ContainsAny(name, ".*> \t\r\n\f/\\"), at, "is %q: no dots, wildcards, blanks or slashes", name)
	control := func(c rune) bool { return unicode.IsControl(c) && !strings.ContainsRune("\t\r\n\f", c) } // these are blanks
	f.Check(!strings.ContainsFunc(name, control), at, "is %q: no control characters", name)
	f.Check(len(name) <= maxName, at, "has %d bytes, want at most %d", len(name), maxName)
}

// maxName is how many bytes a name may have on a server.
const maxName = 255

// validateDomain: what the server refuses as a domain is no part of a subject that it listens to, so nothing would ever answer.
func validateDomain(f *broker.Findings, domain string) {
	f.Check(!strings.ContainsAny(domain, ".*> \t\r\n\f"), "Domain", "is %q: no dots, wildcards or blanks", domain)
}

// validateInbox: what is no subject cannot be subscribed to, and what begins with $ is the server's own.
func validateInbox(f *broker.Findings, prefix string) {
	f.Check(!strings.ContainsAny(prefix, "*> \t\r\n\f"), "InboxPrefix", "is %q: no wildcards or blanks", prefix)
	f.Check(!strings.Contains("."+prefix+".", "..") || prefix == "", "InboxPrefix", "is %q, which has an empty token", prefix)
	f.Check(!strings.HasPrefix(prefix, "$"), "InboxPrefix", "is %q, which is the server's own", prefix)
}

// validateSubjects: each is a subject, and none goes with one before it, as both says.
func validateSubjects(f *broker.Findings, subjects []string, both func(one, other string) bool) {
	at := func(i int) broker.Field { return broker.Field(fmt.Sprintf("Subjects[%d]", i)) }
	for i, s := range subjects {
		if !natssubject.Valid(s) {
			f.Add(at(i), "is %q, which is no subject", s)
		} else if j := slices.IndexFunc(subjects[:i], func(o string) bool { return both(o, s) }); j >= 0 {
			f.Add(at(i), "is %q, which overlaps with %v, %q: a message would come by both", s, at(j), subjects[j])
		}
	}
}

// eitherTakes says whether a server refuses a durable that has both subjects. Where they have only some messages in common it
// takes them, and hands each out once.
func eitherTakes(one, other string) bool {
	return natssubject.Matches(one, other) || natssubject.Matches(other, one)
}

func (c Connection) validate(f *broker.Findings) {
	for i, u := range c.URLs {
		c.validateURL(f, broker.Field(fmt.Sprintf("URLs[%d]", i)), u)
	}
	var first broker.Field
	for _, way := range []struct {
		field broker.Field
		set   bool
	}{
		{"User", c.User != "" || !c.Password.IsZero()}, {"Token", !c.Token.IsZero()},
		{"NKeySeedFile", c.NKeySeedFile != ""}, {"CredsFile", c.CredsFile != ""},
	} {
		switch {
		case !way.set:
		case first == "":
			first = way.field
		default:
			f.Add(way.field, "is set, and so is %v: log in by one of them", first)
		}
	}
	c.validateLogins(f, first)
	f.Check(c.Password.IsZero() || c.User != "", "Password", "is set and %v is not", broker.Field("User"))
	f.Check(c.TLS.CertFile != "" || c.TLS.KeyFile == "", "TLS.KeyFile", "is set and %v is not", broker.Field("TLS.CertFile"))
	f.Check(c.TLS.KeyFile != "" || c.TLS.CertFile == "", "TLS.CertFile", "is set and %v is not", broker.Field("TLS.KeyFile"))
	validateInbox(f, c.InboxPrefix)
	f.Check(c.MaxReconnectWait >= c.ReconnectWait, "MaxReconnectWait",
		"is %v, less than %v, %v", c.MaxReconnectWait, broker.Field("ReconnectWait"), c.ReconnectWait)
}

// validateLogins: where one of the URLs holds a login all do, and there is no other. To a URL without one nats.go says nothing of
// who we are; and whoever it finds through the other one, it gives the login of that. Of two logins to one server it sends one,
// or both, or refuses at each attempt.
func (c Connection) validateLogins(f *broker.Findings, other broker.Field) {
	one := slices.IndexFunc(c.URLs, holdsLogin)
	if one < 0 {
		return
	}
	at := func(i int) broker.Field { return broker.Field(fmt.Sprintf("URLs[%d]", i)) }
	for i, raw := range c.URLs {
		switch _, err := parseURL(raw); {
		case err != nil: // is told
		case !holdsLogin(raw):
			f.Add(at(i), "holds no login, and %v does: want one in each, or in none", at(one))
		case other != "":
			f.Add(at(i), "holds a login, and %v is set: log in by one of them", other)
		}
	}
}

func holdsLogin(raw string) bool {
	u, err := parseURL(raw)
	return err == nil && u.User != nil
}

func (c Connection) validateURL(f *broker.Findings, at broker.Field, raw string) {
	u, err := parseURL(raw)
	if err != nil { // its text repeats the URL, which may hold a password
		f.Add(at, "cannot be read as a URL")
		return
	}
	// it may be a password, behind a slip of the pen
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "" {
		f.Add(at, "has something behind its host: want nats://host:port, and in a password %%2F for /, %%3F for ?, %%23 for #")
		return
	}
	shown, secure := withoutSecrets(u), c.TLS.wanted()
	switch u.Scheme {
	case "tls", "wss":
		secure = true
	case "nats", "ws":
	default:
		f.Add(at, "is %s: the scheme must be nats, tls, ws or wss", shown)
	}
	if u.Hostname() == "" {
		f.Add(at, "is %s: it names no host", shown)
		return
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		f.Check(err == nil && n > 0, at, "is %s: want a port from 1 to 65535", shown)
	}
	open := !c.Password.IsZero() || !c.Token.IsZero() || u.User != nil
	if open && !secure && !c.PlaintextAuth && plaintext.Exposed(u.Hostname()) {
		f.Add(at,
			"is %s: a password or token would go there without TLS; use tls:// or set %v", shown, broker.Field("PlaintextAuth"))
	}
}

// parseURL reads a server's URL, which may go without a scheme.
func parseURL(raw string) (*url.URL, error) {
	if !strings.Contains(raw, "://") {
		raw = "nats://" + raw
	}
	return url.Parse(raw)
}

// withoutSecrets is a URL as it may be shown: a name without a password is a token.
func withoutSecrets(u *url.URL) string {
	bare := *u
	if _, named := u.User.Password(); u.User != nil && !named {
		bare.User = url.User("xxxxx")
	}
	return bare.Redacted()
}

// Validate reports all that is wrong at once, as *broker.Findings. NewSource does so, too. It connects to nothing.
func (c Config) Validate() error {
	f := findings()
	conftag.Check(f, c)
	c = c.withDefaults()
	c.Connection.validate(f)
	validateName(f, "Stream", c.Stream)
	validateName(f, "Consumer", c.Consumer)
	validateDomain(f, c.Domain)
	validateSubjects(f, c.Subjects, eitherTakes)
	f.Check(c.KeyHeader == "" || c.KeyToken == 0, "KeyHeader", "is set, and so is %v: set one", broker.Field("KeyToken"))
	deliver := broker.Field("Deliver")
	f.Check((c.StartSequence != 0) == (c.Deliver == jetstream.DeliverByStartSequencePolicy), "StartSequence",
		"is %d and %v is %v: they go together", c.StartSequence, deliver, c.Deliver)
	f.Check(!c.StartTime.IsZero() == (c.Deliver == jetstream.DeliverByStartTimePolicy), "StartTime",
		"is %v and %v is %v: they go together", c.StartTime, deliver, c.Deliver)
	f.Check(!c.Bind || !c.Recreate, "Recreate",
		"is set, and so is %v: a consumer that is never created cannot be created again", broker.Field("Bind"))
	f.Check(c.CreateStream == nil || c.CreateStream.Name == c.Stream, "CreateStream.Name",
		"is not %v, %q", broker.Field("Stream"), c.Stream)
	return f.Err()
}
