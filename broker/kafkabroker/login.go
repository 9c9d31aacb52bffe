package kafkabroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// mechanism is nil where no login is wanted.
func (s SASL) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "PLAIN":
		return plain.Mechanism{Username: s.User, Password: s.Password.Reveal()}, nil
	case "SCRAM-SHA-256":
		return s.scram(scram.SHA256)
	case "SCRAM-SHA-512":
		return s.scram(scram.SHA512)
	}
	return nil, nil
}

func (s SASL) scram(algo scram.Algorithm) (sasl.Mechanism, error) {
	m, err := scram.Mechanism(algo, s.User, s.Password.Reveal())
	if err != nil {
		return nil, wrong("SASL", "has a user or a password that cannot be used with %s", s.Mechanism)
	}
	return m, nil
}

// logIn logs in on a new connection; m is nil where no login is wanted. kafka-go's own login takes what a broker claims for the
// length of a token, and its errors have neither address nor step.
func (c Connection) logIn(ctx context.Context, conn net.Conn, m sasl.Mechanism, address string) error {
	if m == nil {
		return nil
	}
	// What a broker says before the login needs no rights: when even that fails, it is not the login.
	if _, err := c.over(ctx, conn, keyAPIVersions, 0, nil); err != nil {
		return c.failed(address, greeting, orCause(ctx, err))
	}
	if err := c.authenticate(ctx, conn, m, address); err != nil {
		return c.failed(address, loggingIn, orCause(ctx, err))
	}
	return nil
}

func (c Connection) authenticate(ctx context.Context, conn net.Conn, m sasl.Mechanism, address string) error {
	if err := c.handshake(ctx, conn, m.Name()); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(address)
	no, _ := strconv.Atoi(port)
	session, token, err := m.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host, Port: no}))
	for done := false; err == nil && !done; {
		var challenge []byte
		if challenge, err = c.present(ctx, conn, token); err == nil {
			err = modest(challenge)
		}
		if err == nil {
			done, token, err = session.Next(ctx, challenge)
		}
	}
	return err
}

// handshake names the mechanism: SaslHandshake, version 1 (Apache Kafka's protocol guide).
func (c Connection) handshake(ctx context.Context, conn net.Conn, mechanism string) error {
	w := writer{}
	w.str(mechanism)
	r, err := c.over(ctx, conn, keySASLHandshake, 1, w.b)
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

// present sends a token and returns what it is answered with: SaslAuthenticate, version 0.
func (c Connection) present(ctx context.Context, conn net.Conn, token []byte) (challenge []byte, err error) {
	w := writer{}
	w.bytes(token)
	r, err := c.over(ctx, conn, keySASLAuthenticate, 0, w.b)
	if errors.Is(err, io.EOF) { // as some brokers refuse a login
		return nil, errLoginClosed
	}
	if err != nil {
		return nil, err
	}
	return readChallenge(r)
}

func readChallenge(r *reader) ([]byte, error) {
	code := r.i16()
	why := r.str()
	b := r.bytes()
	if err := r.err(); err != nil {
		return nil, err
	}
	if code != 0 && why != "" {
		return nil, fmt.Errorf("%w: %q", kafka.Error(code), why)
	}
	return b, codeErr(code)
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
