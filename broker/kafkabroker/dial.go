package kafkabroker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
	"github.com/longshoremq/longshore/internal/dialer"
	"github.com/longshoremq/longshore/internal/namedfile"
)

func init() { dialer.Accept(func(c *Connection, dial dialer.Func) { c.dial = dial }) }

// connect makes a transport; it dials when it is used.
func (c Connection) connect() (*cluster, error) {
	t, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	if _, err := c.SASL.mechanism(); err != nil {
		return nil, err
	}
	dial := c.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: c.DialTimeout}).DialContext
	}
	open := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.newConn(ctx, dial, t, network, address)
		if err != nil {
			return nil, err
		}
		l, err := c.logIn(ctx, conn, address)
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		return &guard{Conn: conn, address: address, login: l}, nil
	}
	cl := &cluster{
		named: c.Brokers, clientID: c.ClientID, timeout: c.RequestTimeout,
		versions: make(map[int32]map[int16][2]int16), addresses: make(map[int32]string),
		last: kit.NewRecent[int32, string](mostLearned),
	}
	cl.transport = &kafka.Transport{
		DialTimeout: c.DialTimeout, MetadataTTL: discoveryAge, MetadataTopics: []string{}, ClientID: c.ClientID, // nil topics are all
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == anywhere.String() {
				return cl.dialAny(ctx, network, open)
			}
			return open(ctx, network, address)
		},
	}
	return cl, nil
}

const (
	// discoveryAge is how often the Transport asks at most which brokers there are: see discovery.
	discoveryAge = 5 * time.Minute
	// discoveryWait bounds its question. The Transport would wait for as long as it does not ask, and all requests with it.
	discoveryWait = time.Second
)

// newConn makes a connection, with TLS where that is wanted. The Transport could do TLS too, but its errors would have neither
// address nor step.
func (c Connection) newConn(ctx context.Context, dial dialer.Func, t *tls.Config, network, address string) (net.Conn, error) {
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
	t = t.Clone()
	if t.ServerName == "" {
		t.ServerName = host
	}
	if t.RootCAs, err = c.TLS.authorities(); err != nil {
		_ = conn.Close()
		return nil, c.failed(address, handshaking, err)
	}
	secure := tls.Client(conn, t)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, c.failed(address, handshaking, orCause(ctx, err))
	}
	return secure, nil
}

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
	rereads bool // it is a login with a password that is read again, and may be another one then
}

// errRereads is in a dialError that has that.
var errRereads = errors.New("the password is read again at each login")

func (e *dialError) Error() string {
	if e.hint == "" {
		return fmt.Sprintf("broker %s: %s: %v", e.address, e.step, e.err)
	}
	return fmt.Sprintf("broker %s: %s: %v (%s)", e.address, e.step, e.err, e.hint)
}

func (e *dialError) Unwrap() error { return e.err }

// Is has it found among what several brokers answer.
func (e *dialError) Is(target error) bool { return target == errRereads && e.rereads }

func (c Connection) failed(address string, s step, err error) error {
	return &dialError{address: address, step: s, err: err, hint: c.hint(s, err),
		rereads: s == loggingIn && c.SASL.Password.Rereads()}
}

// hint asks what may be set up otherwise here than there; empty where the error says enough, or anything may be wrong.
func (c Connection) hint(s step, err error) string {
	told := isAlert(err)
	ours := told && strings.Contains(err.Error(), "certificate")
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
	case s == loggingIn && errors.Is(err, errLoginClosed):
		return "a wrong user or password; or does this listener want no login?"
	case s == asking && c.SASL.Mechanism == "" && hungUp(err):
		return "does this listener want a login by SASL?"
	}
	return ""
}

// hungUp says that the other end closed the connection, or speaks something else.
func hungUp(err error) bool {
	var other tls.RecordHeaderError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, errShort) || errors.As(err, &other)
}

// probe connects to one of the brokers, logs in and asks for something. The Transport does not tell why it has no connection;
// this does.
func (c Connection) probe(ctx context.Context, t *kafka.Transport) (err error) {
	for _, b := range c.Brokers {
		e := c.tryBroker(ctx, t, b)
		if e == nil {
			return nil
		}
		err = errors.Join(err, e)
		if ctx.Err() != nil { // of the others nothing would be learned
			break
		}
	}
	return err
}

// tryBroker goes through the steps on a connection of its own, within DialTimeout.
func (c Connection) tryBroker(ctx context.Context, t *kafka.Transport, address string) error {
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	conn, err := t.Dial(ctx, "tcp", address) // which logs in
	if err != nil {
		return err
	}
	defer conn.Close()
	const version = 7
	if err := c.greet(ctx, conn, keyMetadata, version); err != nil {
		return c.failed(address, greeting, orCause(ctx, err))
	}
	if _, err = c.over(ctx, conn, keyMetadata, version, metadataBody(version, []string{})); err != nil {
		return c.failed(address, asking, orCause(ctx, err))
	}
	return nil
}

// greet asks whether the broker speaks a request, and asks again before it says that it does not: see cluster.pick.
func (c Connection) greet(ctx context.Context, conn net.Conn, key, version int16) (err error) {
	for range 2 {
		r, unanswered := c.over(ctx, conn, keyAPIVersions, 0, nil)
		var vs map[int16][2]int16
		if unanswered == nil {
			vs, unanswered = readVersions(r)
		}
		if unanswered != nil {
			return unanswered
		}
		if _, err = choose(vs, key, version); err == nil {
			return nil
		}
	}
	return err
}

// over makes an exchange on a connection that nobody else uses.
func (c Connection) over(ctx context.Context, conn net.Conn, key, version int16, body []byte) (*reader, error) {
	return (&request{ctx: ctx, key: key, version: version, clientID: c.ClientID, body: body}).over(conn)
}

// orCause is why ctx ended, where it has: then it was we who cut the connection.
func orCause(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("no answer: %w", ctx.Err())
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

func (c Connection) tlsConfig() (*tls.Config, error) {
	t := c.TLS
	if !t.wanted() {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if _, err := t.authorities(); err != nil {
		return nil, err
	}
	if t.CertFile != "" {
		if _, err := namedfile.KeyPair(t.CertFile, t.KeyFile); err != nil {
			return nil, wrong("TLS.CertFile", "%s with %v %s: %v", t.CertFile, broker.Field("TLS.KeyFile"), t.KeyFile, err)
		}
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := namedfile.KeyPair(t.CertFile, t.KeyFile)
			return &cert, err
		}
	}
	return conf, nil
}

// authorities reads CAFile; nil: the system's.
func (t TLS) authorities() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	pem, err := namedfile.Read(t.CAFile)
	if err != nil {
		return nil, wrong("TLS.CAFile", "cannot be read: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, wrong("TLS.CAFile", "%s has no certificate in PEM", t.CAFile)
	}
	return pool, nil
}
