package kafkabroker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/longshoremq/longshore/broker"
)

// selfSigned makes a certificate for 127.0.0.1 that is its own authority, for both ends.
func selfSigned(t *testing.T) (certFile, keyFile string, pair tls.Certificate, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "longshore"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := errors.Join(os.WriteFile(certFile, certPEM, 0o600), os.WriteFile(keyFile, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, pair, pool
}

// TestTLS proves mutual TLS, and that a mismatch of TLS and plaintext is told with the broker's address, the step that failed and
// a hint (b05).
func TestTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, pair, pool := selfSigned(t)
	secure := startCluster(t, kfake.SeedTopics(1, "t"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}))
	plain := startCluster(t, kfake.SeedTopics(1, "t"))
	with := TLS{CAFile: certFile, CertFile: certFile, KeyFile: keyFile}
	cfg := func(c *kfake.Cluster, conf TLS) Config {
		return Config{Connection: Connection{Brokers: c.ListenAddrs(), TLS: conf, DialTimeout: patience}, Group: "g",
			Topics: []string{"t"}}
	}
	r := startRunner(t, cfg(secure, with))
	eventually(t, "it has a claim", func() bool { _, ok := r.event(broker.Assigned, ""); return ok })
	for name, tc := range map[string]struct {
		c    *kfake.Cluster
		conf TLS
		want []string
	}{
		"TLS to a plaintext port": {plain, with, []string{"TLS handshake: ", "does this port speak TLS?"}},
		"plaintext to a TLS port": {secure, TLS{}, []string{"ApiVersions request: ", "does this port want TLS?"}},
		"no certificate": {secure, TLS{CAFile: certFile},
			[]string{"certificate", "does this port want a client certificate?"}},
		"unknown authority": {secure, TLS{Enabled: true}, []string{"TLS handshake: ", "x509: "}},
	} {
		t.Run(name, func(t *testing.T) {
			c := cfg(tc.c, tc.conf).Connection
			if tc.c == plain {
				c.DialTimeout = 500 * time.Millisecond // the fake waits for more, where Kafka closes
			}
			refusesKind(t, c, tc.want...)
		})
	}
	for name, conf := range map[string]TLS{"no file": {CAFile: "/nonexistent"},
		"a key that does not fit": {CertFile: keyFile, KeyFile: keyFile}, "half": {CertFile: certFile}} {
		if _, err := NewSource(cfg(secure, conf)); err == nil {
			t.Errorf("%s: New says nil", name)
		}
	}
}

// TestRenewedAuthority: the brokers have certificates of another authority from now on, and the file has that. New connections
// believe it, and not the one before any more. While the file is not there the error names it.
func TestRenewedAuthority(t *testing.T) {
	t.Parallel()
	oldFile, _, oldPair, _ := selfSigned(t)
	newFile, _, newPair, _ := selfSigned(t)
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(&oldPair)
	k := startCluster(t, kfake.TLS(&tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown.Load(), nil }}))
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	renew := func(from string) {
		text, err := os.ReadFile(from)
		if err := errors.Join(err, os.WriteFile(caFile, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	renew(oldFile)
	with := Connection{Brokers: k.ListenAddrs(), TLS: TLS{CAFile: caFile}, DialTimeout: patience, RequestTimeout: patience}
	c, err := with.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer c.transport.CloseIdleConnections()
	ask := func() error {
		c.transport.CloseIdleConnections()
		_, err := c.do(t.Context(), anyNode, keyAPIVersions, 0, nil)
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	shown.Store(&newPair)
	if err := ask(); err == nil || !strings.Contains(err.Error(), "x509: ") {
		t.Errorf("a certificate of an authority that the file does not have: %v", err)
	}
	if err := os.Remove(caFile); err != nil {
		t.Fatal(err)
	}
	if err := ask(); err == nil || !strings.Contains(err.Error(), caFile) {
		t.Errorf("no file: %v", err)
	}
	renew(newFile)
	if err := ask(); err != nil {
		t.Errorf("the file has the new authority: %v", err)
	}
	shown.Store(&oldPair)
	if err := ask(); err == nil {
		t.Error("the old authority, which the file does not have any more, is believed")
	}
}

// TestLoginOfTheOtherKind: no login where one is wanted, and one where none is, are told by the step, with the broker's address
// (b05).
func TestLoginOfTheOtherKind(t *testing.T) {
	t.Parallel()
	guarded := startCluster(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "admin", "canary-7f3"))
	refusesKind(t, Connection{Brokers: guarded.ListenAddrs()}, "Metadata request: ", "does this listener want a login by SASL?")
	login := SASL{Mechanism: "SCRAM-SHA-256", User: "admin", Password: broker.NewSecret("canary-7f3")}
	refusesKind(t, Connection{Brokers: guarded.ListenAddrs(), SASL: login}, "login: ")
}

// TestHint has the errors of brokers that are set up otherwise, as Apache Kafka's show themselves too.
func TestHint(t *testing.T) {
	told := func(text string) error { return &net.OpError{Op: "remote error", Err: errors.New("tls: " + text)} }
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	login := SASL{Mechanism: "PLAIN"}
	for name, tc := range map[string]struct {
		c    Connection
		step step
		err  error
		want string
	}{
		"refused": {step: connecting, err: syscall.ECONNREFUSED},
		"TLS, closed": {c: Connection{TLS: TLS{Enabled: true}}, step: handshaking, err: io.EOF,
			want: "does this port speak TLS?"},
		"TLS, silence": {c: Connection{TLS: TLS{Enabled: true}}, step: handshaking, err: context.DeadlineExceeded,
			want: "does this port speak TLS?"},
		"TLS, something else": {c: Connection{TLS: TLS{Enabled: true}}, step: handshaking, err: tls.RecordHeaderError{},
			want: "does this port speak TLS?"},
		"TLS, unknown authority": {c: Connection{TLS: TLS{Enabled: true}}, step: handshaking, err: x509.UnknownAuthorityError{}},
		"no certificate, 1.2": {c: Connection{TLS: TLS{Enabled: true}}, step: handshaking, err: told("bad certificate"),
			want: "does this port want a client certificate?"},
		"no certificate, 1.3": {c: Connection{TLS: TLS{Enabled: true}}, step: greeting, err: told("certificate required"),
			want: "does this port want a client certificate?"},
		"no certificate, just closed": {c: Connection{TLS: TLS{Enabled: true}}, step: greeting, err: reset,
			want: "does this port want a client certificate?"},
		"another certificate": {c: Connection{TLS: TLS{CertFile: "c"}}, step: greeting,
			err: told("unknown certificate authority"), want: "does this port know our client certificate?"},
		"TLS, too old": {c: Connection{TLS: TLS{Enabled: true}}, step: handshaking,
			err: told("protocol version not supported")},
		"plaintext, closed":    {step: greeting, err: io.EOF, want: "does this port want TLS?"},
		"plaintext, an alert":  {step: greeting, err: io.ErrUnexpectedEOF, want: "does this port want TLS?"},
		"plaintext, not Kafka": {step: greeting, err: fmt.Errorf("answer: %w", errShort), want: "does this port want TLS?"},
		"plaintext, silence":   {step: greeting, err: context.DeadlineExceeded},
		"no login":             {step: asking, err: reset, want: "does this listener want a login by SASL?"},
		"no login, silence":    {step: asking, err: context.DeadlineExceeded},
		"login where none is wanted": {c: Connection{SASL: login}, step: loggingIn, err: kafka.IllegalSASLState,
			want: "does this listener want no login?"},
		"a wrong password":     {c: Connection{SASL: login}, step: loggingIn, err: kafka.SASLAuthenticationFailed},
		"closed after a login": {c: Connection{SASL: login}, step: asking, err: io.EOF},
	} {
		if got := tc.c.hint(tc.step, tc.err); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestLoginStaysHere: brokers that others tell of get no login without TLS either.
func TestLoginStaysHere(t *testing.T) {
	c := Connection{SASL: SASL{Mechanism: "SCRAM-SHA-256"}}
	var dialed []string
	dial := func(_ context.Context, _, address string) (net.Conn, error) {
		dialed = append(dialed, address)
		return nil, syscall.ECONNREFUSED
	}
	for _, address := range []string{"broker.example:9092", "127.0.0.1:9092"} {
		_, err := c.newConn(t.Context(), dial, nil, "tcp", address)
		if err == nil || !strings.Contains(err.Error(), "broker "+address+": connecting: ") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if len(dialed) != 1 || dialed[0] != "127.0.0.1:9092" {
		t.Errorf("dialed %v, want the one on this machine", dialed)
	}
}

// refusesKind proves that a source, a publisher and a view of the lag all tell the broker's address, what was being done and what
// may be wrong; and that a broker nobody chose is not called by a number.
func refusesKind(t *testing.T, c Connection, want ...string) {
	t.Helper()
	want = append(want, "broker "+c.Brokers[0]+": ")
	for who, err := range map[string]error{"source": openError(t, c), "publisher": publishError(t, c), "lag": lagError(t, c)} {
		if err == nil {
			t.Errorf("%s: no error", who)
			continue
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q is not in: %v", who, text, err)
			}
		}
		if strings.Contains(err.Error(), "broker -1") || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// openError is the first that a source tells before it is open. The error of an Open that is given up then says the same.
func openError(t *testing.T, c Connection) error {
	t.Helper()
	s, err := NewSource(Config{Connection: c, Group: "g", Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var told error
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(e broker.Event) {
		// A broker that answers, and gets no processor for two seconds, is told of as one that does not; then it is asked again.
		// Only a short DialTimeout is for one that does not.
		late := e.Err != nil && strings.Contains(e.Err.Error(), "no answer") && (c.DialTimeout == 0 || c.DialTimeout == patience)
		if e.Kind == broker.Down && told == nil && !late {
			told = e.Err
			cancel()
		}
	}})
	if err == nil || told == nil || !strings.Contains(err.Error(), told.Error()) {
		t.Errorf("Open says %v, want %v in it", err, told)
	}
	return told
}

func publishError(t *testing.T, c Connection) error {
	t.Helper()
	p, err := NewPublisher(PublisherConfig{Connection: c})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.Publish(ctx, []broker.Outgoing{{Topic: "t", Value: []byte("v")}})
}

func lagError(t *testing.T, c Connection) error {
	t.Helper()
	c.RequestTimeout = time.Second // it tries for as long: a broker that restarts behind a proxy hangs up, too
	v, err := NewLagView(LagViewConfig{Connection: c, Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = v.Read(ctx)
	return err
}
