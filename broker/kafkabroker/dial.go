package kafkabroker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// connect makes a transport; it dials when it is used. topic is what the Transport looks at for its own layout.
func (c Connection) connect(topic string) (*cluster, error) {
	t, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	m, err := c.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	dial := c.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: c.DialTimeout}).DialContext
	}
	tr := &kafka.Transport{
		DialTimeout: c.DialTimeout, MetadataTTL: time.Second, MetadataTopics: []string{topic}, ClientID: c.ClientID, SASL: m,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.newConn(ctx, dial, t, network, address)
		},
	}
	return &cluster{
		transport: tr, addr: kafka.TCP(c.Brokers...), clientID: c.ClientID, timeout: c.RequestTimeout,
		versions: make(map[int32]map[int16][2]int16), addresses: make(map[int32]string),
	}, nil
}

// newConn makes a connection, with TLS where that is wanted. The Transport could do TLS too, but its errors would have neither address nor step.
func (c Connection) newConn(ctx context.Context, dial dialFunc, t *tls.Config, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err == nil && !c.mayLogIn(host) { // a broker that others told of
		err = errors.New("the login would go there without TLS")
	}
	var conn net.Conn
	if err == nil {
		conn, err = dial(ctx, network, address)
	}
	if err != nil {
		return nil, c.failed(address, connecting, err)
	}
	if t == nil {
		return conn, nil
	}
	if t.ServerName == "" {
		t = t.Clone()
		t.ServerName = host
	}
	secure := tls.Client(conn, t)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, c.failed(address, handshaking, err)
	}
	return secure, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// A step is one of a new connection. Where it ends tells what is set up otherwise here than there.
type step string

const (
	connecting  step = "connecting"
	handshaking step = "TLS handshake"
	greeting    step = "ApiVersions request" // which needs no login
	loggingIn   step = "login"
	asking      step = "Metadata request"
)

// A dialError says which step of a new connection failed, and what may be wrong.
type dialError struct {
	address string
	step    step
	err     error
	hint    string
}

func (e *dialError) Error() string {
	if e.hint == "" {
		return fmt.Sprintf("broker %s: %s: %v", e.address, e.step, e.err)
	}
	return fmt.Sprintf("broker %s: %s: %v (%s)", e.address, e.step, e.err, e.hint)
}

func (e *dialError) Unwrap() error { return e.err }

func (c Connection) failed(address string, s step, err error) error {
	return &dialError{address: address, step: s, err: err, hint: c.hint(s, err)}
}

// hint asks what may be set up otherwise here than there; empty where the error says enough, or anything may be wrong.
func (c Connection) hint(s step, err error) string {
	var alert *net.OpError
	told := errors.As(err, &alert) && alert.Op == "remote error"
	ours := told && strings.Contains(alert.Error(), "certificate")
	switch {
	case s == handshaking && !told && (hungUp(err) || errors.Is(err, context.DeadlineExceeded)):
		return "does this port speak TLS?"
	case s == greeting && !c.TLS.wanted() && hungUp(err):
		return "does this port want TLS?"
	case (s == handshaking || s == greeting) && c.TLS.wanted() && c.TLS.CertFile == "" && (ours || hungUp(err)):
		return "does this port want a client certificate?"
	case (s == handshaking || s == greeting) && c.TLS.CertFile != "" && ours:
		return "does this port know our client certificate?"
	case s == loggingIn && codeOf(err) == kafka.IllegalSASLState:
		return "does this listener want no login?"
	case s == asking && c.SASL.Mechanism == "" && hungUp(err):
		return "does this listener want a login by SASL?"
	}
	return ""
}

// hungUp says that the other end closed the connection, or speaks something else.
func hungUp(err error) bool {
	var other tls.RecordHeaderError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, errShort) || errors.As(err, &other)
}

// probe connects to one of the brokers, logs in and asks for something. The Transport does not tell why it has no connection; this does.
func (c Connection) probe(ctx context.Context, t *kafka.Transport) (err error) {
	for _, b := range c.Brokers {
		e := c.tryBroker(ctx, t, b)
		if e == nil {
			return nil
		}
		err = errors.Join(err, e)
	}
	return err
}

// tryBroker goes through the steps on two connections: kafka-go's login asks for versions too, and Kafka answers that once for each before a login.
func (c Connection) tryBroker(ctx context.Context, t *kafka.Transport, address string) error {
	var vs map[int16][2]int16
	err := c.onConn(ctx, t, address, func(ctx context.Context, conn net.Conn) (step, error) {
		r, err := (&request{ctx: ctx, key: keyAPIVersions, clientID: c.ClientID, limit: maxAnswer}).over(conn)
		if err == nil {
			vs, err = readVersions(r)
		}
		return greeting, err
	})
	if err != nil {
		return err
	}
	return c.onConn(ctx, t, address, func(ctx context.Context, conn net.Conn) (step, error) {
		if err := c.logIn(ctx, t, conn, address); err != nil {
			return loggingIn, err
		}
		version, err := choose(vs, keyMetadata, 7)
		if err == nil {
			q := request{ctx: ctx, key: keyMetadata, version: version, clientID: c.ClientID, body: metadataBody(version, []string{}), limit: maxAnswer}
			_, err = q.over(conn)
		}
		return asking, err
	})
}

// onConn does steps on a connection of its own, within DialTimeout.
func (c Connection) onConn(ctx context.Context, t *kafka.Transport, address string, do func(context.Context, net.Conn) (step, error)) error {
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	conn, err := t.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	s, err := do(ctx, conn)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err() // it was we who closed
	}
	return c.failed(address, s, err)
}

// logIn has kafka-go's Dialer log in on a connection that there is.
func (c Connection) logIn(ctx context.Context, t *kafka.Transport, conn net.Conn, address string) error {
	if t.SASL == nil {
		return nil
	}
	d := kafka.Dialer{ClientID: c.ClientID, SASLMechanism: t.SASL, DialFunc: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	_, err := d.DialContext(ctx, "tcp", address)
	if code := codeOf(err); code != 0 {
		return code
	}
	return err
}

func (c Connection) tlsConfig() (*tls.Config, error) {
	t := c.TLS
	if !t.wanted() {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("kafkabroker: TLS.CAFile: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafkabroker: TLS.CAFile %s has no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			return nil, fmt.Errorf("kafkabroker: TLS.CertFile %s with TLS.KeyFile %s: %w", t.CertFile, t.KeyFile, err)
		}
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			return &cert, err
		}
	}
	return conf, nil
}

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
		return nil, fmt.Errorf("kafkabroker: SASL.User or SASL.Password cannot be used with %s", s.Mechanism)
	}
	return m, nil
}
