package kafkabroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// mechanism is nil where no login is wanted. It has the password as it is now: each login asks for its own.
func (s SASL) mechanism() (sasl.Mechanism, error) {
	password, err := s.Password.Read()
	if err != nil {
		return nil, wrong("SASL.Password", "cannot be read: %v", err)
	}
	switch s.Mechanism {
	case "PLAIN":
		return plain.Mechanism{Username: s.User, Password: password}, nil
	case "SCRAM-SHA-256":
		return s.scram(scram.SHA256, password)
	case "SCRAM-SHA-512":
		return s.scram(scram.SHA512, password)
	}
	return nil, nil
}

func (s SASL) scram(algo scram.Algorithm, password string) (sasl.Mechanism, error) {
	m, err := scram.Mechanism(algo, s.User, password)
	if err != nil {
		return nil, wrong("SASL", "has a user or a password that cannot be used with %s", s.Mechanism)
	}
	return m, nil
}

// A login is that of one connection. kafka-go's own takes what a broker claims for the length of a token, its errors have neither
// address nor step, and it does not log in again.
//
// A broker may say for how long a login holds (connections.max.reauth.ms, KIP-368). It then closes a connection on which anything
// else than a new login comes later, and the request gets no answer: a handler's output, a commit or the end of a transaction
// fails, which is in doubt then, though all is well. So before a request that comes late in that time the login is made again.
type login struct {
	c       Connection
	conn    net.Conn
	address string
	version int16     // of SaslAuthenticate
	due     time.Time // when it is to be made again; zero: never
}

// logIn logs in on a new connection; nil: no login is wanted.
func (c Connection) logIn(ctx context.Context, conn net.Conn, address string) (*login, error) {
	if c.SASL.Mechanism == "" {
		return nil, nil
	}
	l := &login{c: c, conn: conn, address: address}
	// What a broker says before the login needs no rights: when even that fails, it is not the login.
	r, err := c.over(ctx, conn, keyAPIVersions, 0, nil)
	if err != nil {
		return nil, c.failed(address, greeting, orCause(ctx, err))
	}
	if vs, err := readVersions(r); err == nil {
		if _, err := choose(vs, keySASLAuthenticate, 1); err == nil {
			l.version = 1
		}
	}
	return l, l.authenticate(ctx)
}

// renew logs in again where that is due. The connection has the deadline of the request that is to follow.
func (l *login) renew() error {
	if l == nil || l.due.IsZero() || time.Now().Before(l.due) {
		return nil
	}
	return l.authenticate(context.Background())
}

func (l *login) authenticate(ctx context.Context) error {
	began := time.Now()
	lifetime, err := l.converse(ctx)
	if err != nil {
		return l.c.failed(l.address, loggingIn, orCause(ctx, err))
	}
	l.due = time.Time{}
	if lifetime > 0 {
		l.due = began.Add(lifetime - lifetime/10) // as late as others do, who leave between 5 % and 15 %
	}
	return nil
}

// converse goes through the mechanism's steps, and returns for how long the login holds; 0: for ever.
func (l *login) converse(ctx context.Context) (lifetime time.Duration, err error) {
	m, err := l.c.SASL.mechanism()
	if err != nil {
		return 0, err
	}
	if err := l.handshake(ctx, m.Name()); err != nil {
		return 0, err
	}
	host, port, _ := net.SplitHostPort(l.address)
	no, _ := strconv.Atoi(port)
	session, token, err := m.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host, Port: no}))
	for done := false; err == nil && !done; {
		var challenge []byte
		if challenge, lifetime, err = l.present(ctx, token); err == nil {
			err = modest(challenge)
		}
		if err == nil {
			done, token, err = session.Next(ctx, challenge)
		}
	}
	return lifetime, err
}

// handshake names the mechanism: SaslHandshake, version 1 (Apache Kafka's protocol guide).
func (l *login) handshake(ctx context.Context, mechanism string) error {
	w := writer{}
	w.str(mechanism)
	r, err := l.c.over(ctx, l.conn, keySASLHandshake, 1, w.b)
	if err != nil {
		return err
	}
	offered, err := readHandshake(r)
	if codeOf(err) == kafka.UnsupportedSASLMechanism {
		return fmt.Errorf("%w: SASL.Mechanism is %s, the broker offers %q", err, mechanism, offered)
	}
	return err
}

func readHandshake(r *reader) (offered []string, err error) {
	code := r.i16()
	r.each(func() { offered = append(offered, r.str()) })
	if err := r.err(); err != nil {
		return nil, err
	}
	return offered, codeErr(code)
}

var errLoginClosed = fmt.Errorf("%w: the broker closed the connection", kafka.SASLAuthenticationFailed)

// present sends a token and returns what it is answered with: SaslAuthenticate.
func (l *login) present(ctx context.Context, token []byte) (challenge []byte, lifetime time.Duration, err error) {
	w := writer{}
	w.bytes(token)
	r, err := l.c.over(ctx, l.conn, keySASLAuthenticate, l.version, w.b)
	if errors.Is(err, io.EOF) { // as some brokers refuse a login
		return nil, 0, errLoginClosed
	}
	if err != nil {
		return nil, 0, err
	}
	return readChallenge(r, l.version)
}

// mostLifetime is what a login holds for that holds for longer: no connection is so old.
const mostLifetime = 365 * 24 * time.Hour

func readChallenge(r *reader, version int16) (challenge []byte, lifetime time.Duration, err error) {
	code := r.i16()
	why := r.str()
	challenge = r.bytes()
	if version >= 1 {
		lifetime = time.Duration(min(r.i64(), mostLifetime.Milliseconds())) * time.Millisecond
	}
	if err := r.err(); err != nil {
		return nil, 0, err
	}
	if code != 0 && why != "" {
		return nil, 0, fmt.Errorf("%w: %q", codeErr(code), why)
	}
	return challenge, lifetime, codeErr(code)
}

// maxIterations of SCRAM that we do for a broker: some tenths of a second. Kafka's own default is 4096, and 16,384 is the most
// that it makes.
const maxIterations = 1_000_000

// modest refuses a challenge of SCRAM that asks for more work than any password needs: nothing could cut it short.
func modest(challenge []byte) error {
	for _, field := range bytes.Split(challenge, []byte(",")) {
		if n, is := bytes.CutPrefix(field, []byte("i=")); is {
			if i, err := strconv.Atoi(string(n)); err != nil || i > maxIterations {
				return fmt.Errorf("SCRAM with %.20q iterations, the limit is %d: %w", n, maxIterations, errShort)
			}
		}
	}
	return nil
}
