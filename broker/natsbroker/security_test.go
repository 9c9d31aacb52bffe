package natsbroker_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

const canary = "canary-5b1f"

// authority makes certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.key = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der := must(x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key))
	a.cert = must(x509.ParseCertificate(der))
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (a *authority) write(name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

func (a *authority) ca() string { return filepath.Join(a.dir, "ca.pem") }

// pair makes a certificate for localhost names and returns its files.
func (a *authority) pair(name string) (cert, key string) {
	k := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"nats.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der := must(x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key))
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "EC PRIVATE KEY", must(x509.MarshalECPrivateKey(k)))
}

// login is one way to log in: right, and wrong in ways that must give a clear error.
type login struct {
	server func(*server.Options)
	right  natsbroker.Connection
	wrong  map[string]natsbroker.Connection
	admin  []nats.Option
}

func logins(t *testing.T) map[string]login {
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	scert, skey := ca.pair("server")
	ccert, ckey := ca.pair("client")
	xcert, xkey := stranger.pair("client")
	serverTLS := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{must(tls.LoadX509KeyPair(scert, skey))}}
	mutual := serverTLS.Clone()
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	mutual.ClientCAs.AddCert(ca.cert)
	first := func(c *tls.Config) func(*server.Options) {
		return func(o *server.Options) { o.TLSConfig, o.TLSTimeout, o.TLSHandshakeFirst = c, 5, true }
	}
	onlyTLS := func(c *tls.Config) func(*server.Options) {
		return func(o *server.Options) { o.TLS, o.TLSConfig, o.TLSTimeout = true, c, 5 }
	}
	conn := func(change func(*natsbroker.Connection)) natsbroker.Connection {
		var c natsbroker.Connection
		change(&c)
		return c
	}
	seed, public := userKey(t)
	otherSeed, _ := userKey(t)
	op := newOperator(t)
	return map[string]login{
		"TLS": {onlyTLS(serverTLS), natsbroker.Connection{TLS: natsbroker.TLS{CAFile: ca.ca()}}, map[string]natsbroker.Connection{
			"another authority": {TLS: natsbroker.TLS{CAFile: stranger.ca()}},
			"another name":      {TLS: natsbroker.TLS{CAFile: ca.ca(), ServerName: "elsewhere.test"}},
		}, []nats.Option{nats.RootCAs(ca.ca())}},
		"TLS by name": {onlyTLS(serverTLS), natsbroker.Connection{TLS: natsbroker.TLS{CAFile: ca.ca(), ServerName: "nats.test"}}, nil,
			[]nats.Option{nats.RootCAs(ca.ca())}},
		"TLS before the server's first word": {first(serverTLS),
			natsbroker.Connection{TLS: natsbroker.TLS{CAFile: ca.ca(), HandshakeFirst: true}}, nil,
			[]nats.Option{nats.RootCAs(ca.ca()), nats.TLSHandshakeFirst()}},
		"mutual TLS": {onlyTLS(mutual), natsbroker.Connection{TLS: natsbroker.TLS{CAFile: ca.ca(), CertFile: ccert, KeyFile: ckey}},
			map[string]natsbroker.Connection{
				"no certificate":        {TLS: natsbroker.TLS{CAFile: ca.ca()}},
				"a foreign certificate": {TLS: natsbroker.TLS{CAFile: ca.ca(), CertFile: xcert, KeyFile: xkey}},
				"a missing file":        {TLS: natsbroker.TLS{CAFile: ca.ca(), CertFile: ccert, KeyFile: "missing.key"}},
				"a key as authority":    {TLS: natsbroker.TLS{CAFile: ckey}},
			}, []nats.Option{nats.RootCAs(ca.ca()), nats.ClientCert(ccert, ckey)}},
		"TLS to a plain server": {func(*server.Options) {}, natsbroker.Connection{}, map[string]natsbroker.Connection{
			"demanded": {TLS: natsbroker.TLS{Enabled: true}},
		}, nil},
		"user and password": {func(o *server.Options) { o.Username, o.Password = "u", canary },
			conn(func(c *natsbroker.Connection) { c.User, c.Password = "u", broker.NewSecret(canary) }), map[string]natsbroker.Connection{
				"another password": {User: "u", Password: broker.NewSecret(canary + "x")},
				"none":             {},
			}, []nats.Option{nats.UserInfo("u", canary)}},
		"password in the URL": {func(o *server.Options) { o.Username, o.Password = "u", canary },
			natsbroker.Connection{URLs: []string{"nats://u:" + canary + "@"}}, map[string]natsbroker.Connection{
				"another password": {URLs: []string{"nats://u:" + canary + "x@"}},
			}, []nats.Option{nats.UserInfo("u", canary)}},
		"token": {func(o *server.Options) { o.Authorization = canary }, natsbroker.Connection{Token: broker.NewSecret(canary)},
			map[string]natsbroker.Connection{
				"another token": {Token: broker.NewSecret(canary + "x")},
			}, []nats.Option{nats.Token(canary)}},
		"NKey": {func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} }, natsbroker.Connection{NKeySeedFile: seed},
			map[string]natsbroker.Connection{
				"another seed":   {NKeySeedFile: otherSeed},
				"a missing file": {NKeySeedFile: "missing.nk"},
				"no seed in it":  {NKeySeedFile: file(t, canary)},
			}, []nats.Option{must(nats.NkeyOptionFromSeed(seed))}},
		"creds": {op.server, natsbroker.Connection{CredsFile: op.creds(op.account)}, map[string]natsbroker.Connection{
			"of an unknown account": {CredsFile: op.creds(must(nkeys.CreateAccount()))},
			"a missing file":        {CredsFile: "missing.creds"},
			"no creds in it":        {CredsFile: file(t, canary)},
		}, []nats.Option{nats.UserCredentials(op.creds(op.account))}},
	}
}

func file(t *testing.T, content string) string {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func userKey(t *testing.T) (seedFile, public string) {
	k := must(nkeys.CreateUser())
	return file(t, string(must(k.Seed()))), must(k.PublicKey())
}

// operator is a server's trust in accounts by JWT.
type operator struct {
	t       *testing.T
	key     nkeys.KeyPair
	account nkeys.KeyPair
}

func newOperator(t *testing.T) *operator {
	return &operator{t, must(nkeys.CreateOperator()), must(nkeys.CreateAccount())}
}

func (o *operator) server(so *server.Options) {
	claims := jwt.NewOperatorClaims(must(o.key.PublicKey()))
	so.TrustedOperators = []*jwt.OperatorClaims{must(jwt.DecodeOperatorClaims(must(claims.Encode(o.key))))}
	account := jwt.NewAccountClaims(must(o.account.PublicKey()))
	account.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(must(o.account.PublicKey()), must(account.Encode(o.key))); err != nil {
		o.t.Fatal(err)
	}
	system := must(nkeys.CreateAccount())
	sys := jwt.NewAccountClaims(must(system.PublicKey()))
	if err := resolver.Store(must(system.PublicKey()), must(sys.Encode(o.key))); err != nil {
		o.t.Fatal(err)
	}
	so.SystemAccount = must(system.PublicKey())
	so.AccountResolver = resolver
}

func (o *operator) creds(account nkeys.KeyPair) string {
	user := must(nkeys.CreateUser())
	claims := jwt.NewUserClaims(must(user.PublicKey()))
	token := must(claims.Encode(account))
	return file(o.t, string(must(jwt.FormatUserConfig(token, must(user.Seed())))))
}

// b06: each way to log in works, and what is wrong gives a clear error at once, without the secret and without a hot loop.
func TestLogin(t *testing.T) {
	t.Parallel()
	for name, l := range logins(t) {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, l.server)
			a := ts.admin(l.admin...)
			a.stream()
			a.publish(1, 3)
			s := open(t, ts.as(l.right))
			ack(t, s, receive(t, s, 3)...)
			a.settled()
			for name, wrong := range l.wrong {
				t.Run(name, func(t *testing.T) { refused(t, ts.as(wrong)) })
			}
		})
	}
}

// as is the test's configuration with the login of c.
func (ts *testServer) as(c natsbroker.Connection) natsbroker.Config {
	cfg := config(ts.url())
	urls := cfg.URLs
	if len(c.URLs) > 0 { // a user, to be put before the host
		urls = []string{c.URLs[0] + strings.TrimPrefix(urls[0], "nats://")}
	}
	wait, most := cfg.ReconnectWait, cfg.MaxReconnectWait
	cfg.Connection = c
	cfg.URLs, cfg.ReconnectWait, cfg.MaxReconnectWait = urls, wait, most
	return cfg
}

func refused(t *testing.T, cfg natsbroker.Config) {
	t.Helper()
	s, err := natsbroker.NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSource(t, s)
	ev := &events{}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: ev.observe})
	if err == nil || ctx.Err() != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Logf("%v", err)
	if n := len(ev.of(broker.Down)); n > 1 {
		t.Errorf("it was tried %d times again", n)
	}
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v %#v %q", err, err, err)} {
		if strings.Contains(text, canary) {
			t.Errorf("the secret is printed: %s", text)
		}
	}
}

// Credentials that stop being good while a source runs: it says so, goes on trying, and not in a hot loop.
func TestLoginThatExpires(t *testing.T) {
	t.Parallel()
	ts := startServer(t, func(o *server.Options) { o.Username, o.Password = "u", canary })
	a := ts.admin(nats.UserInfo("u", canary), nats.IgnoreAuthErrorAbort()) // else a second refusal ends the test's connection
	a.stream()
	cfg := ts.as(natsbroker.Connection{User: "u", Password: broker.NewSecret(canary)})
	s := open(t, cfg)
	ts.down()
	ts.opts.Password = "another"
	ts.up()
	eventually(t, "the refusal is told", func() bool {
		for _, e := range append(s.events.of(broker.Down), s.events.of(broker.Warning)...) {
			if strings.Contains(strings.ToLower(e.Err.Error()), "authorization") {
				return true
			}
		}
		return false
	})
	ts.down()
	ts.opts.Password = canary
	ts.up()
	a.again()
	a.publish(1, 1)
	ack(t, s, receive(t, s, 1)...)
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	if n := len(s.events.all); n > 100 {
		t.Errorf("%d events", n)
	}
	for _, e := range s.events.all {
		if e.Err != nil && strings.Contains(e.Err.Error(), canary) {
			t.Errorf("the secret is printed: %v", e.Err)
		}
	}
}

// The same where the client had given the connection up for good: it does so for an error that it does not know.
func TestLoginThatExpiresOverAClosedConnection(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	s := open(t, config(p.url()))
	p.lead(startServer(t, func(o *server.Options) { o.Username, o.Password = "u", canary }).opts.Port)
	p.say("-ERR 'Something New'")
	eventually(t, "the refusal is told", func() bool {
		return slices.ContainsFunc(s.events.of(broker.Down), func(e broker.Event) bool {
			return strings.Contains(strings.ToLower(e.Err.Error()), "authorization")
		})
	})
	p.lead(ts.opts.Port)
	a.publish(1, 1)
	ack(t, s, receive(t, s, 1)...)
	a.settled()
}

// Acks that the server does not let through are told of once, not each by itself: there are some for each message, every second.
func TestAcksThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	ts := startServer(t, fewMay(server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.ACK.>"}}}))
	a := ts.admin(nats.UserInfo("all", "word"))
	a.stream()
	a.publish(1, 50)
	cfg := config(ts.url())
	cfg.User, cfg.Password, cfg.AckWait = "few", broker.NewSecret("word"), time.Minute
	s := open(t, cfg)
	ack(t, s, receive(t, s, 50)...)
	eventually(t, "it is warned of", func() bool { return len(s.events.of(broker.Warning)) > 0 })
	pass(t, 2*time.Second, "acks were sent again")
	if w := s.events.of(broker.Warning); len(w) != 1 || !strings.Contains(w[0].Err.Error(), "may this user publish to $JS.ACK.>?") {
		t.Errorf("%d warnings, the first of them %v; want one", len(w), w[0].Err)
	}
}

// Who may not ask for the stream works without: it is told at the start, and not asked again.
func TestStreamThatMayNotBeAsked(t *testing.T) {
	t.Parallel()
	ts := startServer(t, fewMay(server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.>"}}}))
	a := ts.admin(nats.UserInfo("all", "word"))
	a.stream()
	a.publish(1, 10)
	cfg := config(ts.url())
	cfg.User, cfg.Password, cfg.Poll = "few", broker.NewSecret("word"), 20*time.Millisecond
	s := open(t, cfg)
	ack(t, s, receive(t, s, 10)...)
	a.settled()
	asked := len(s.events.of(broker.Warning))
	a.looked(12) // at each fifth, it looks at the stream
	if w := s.events.of(broker.Warning); len(w) != asked || asked != 1 {
		t.Errorf("%d warnings at the start, and %d later, the last of them %v; want one and none", asked, len(w)-asked, w[len(w)-1].Err)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	cfg := natsbroker.Config{Connection: natsbroker.Connection{Password: broker.NewSecret(canary), Token: broker.NewSecret(canary)}}
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "password", cfg.Password, "config", cfg.Connection)
	js := must(json.Marshal(cfg))
	out := fmt.Sprintf("%v %+v %#v %s %q", cfg, cfg, cfg, cfg.Password, cfg.Token) + b.String() + string(js)
	if strings.Contains(out, canary) {
		t.Errorf("printed: %s", out)
	}
}

func TestSecretsThatOthersMayRead(t *testing.T) {
	seed, public := userKey(t)
	ts := startServer(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
	ts.admin(must(nats.NkeyOptionFromSeed(seed))).stream()
	if err := os.Chmod(seed, 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, ts.as(natsbroker.Connection{NKeySeedFile: seed}))
	eventually(t, "the mode is told", func() bool {
		w := s.events.of(broker.Warning)
		return len(w) == 1 && strings.Contains(w[0].Err.Error(), "NKeySeedFile") && strings.Contains(w[0].Err.Error(), "0644")
	})
}

// Who may not ask is not told so by an answer: there is none. What says that nobody answered says what right is missing.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	for lacks, ask := range map[string]func(t *testing.T, c natsbroker.Connection) error{
		"STREAM.NAMES": func(t *testing.T, c natsbroker.Connection) error {
			p := newPublisher(t, c.URLs[0], func(pc *natsbroker.PublisherConfig) { pc.Connection = c })
			return p.Find(t.Context(), "s.a")
		},
		"STREAM.MSG.GET.S": func(t *testing.T, c natsbroker.Connection) error {
			v := must(natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: c}))
			t.Cleanup(v.Close)
			_, err := v.Scan(t.Context(), broker.Scan{Topic: "s.a"}, func(*broker.Message) error { return nil })
			return err
		},
		"STREAM.MSG.DELETE.S": func(t *testing.T, c natsbroker.Connection) error {
			v := must(natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: c}))
			t.Cleanup(v.Close)
			return v.Remove(t.Context(), "s.a", []broker.Place{{Offset: 1}})
		},
		"CONSUMER.INFO.S.c": func(t *testing.T, c natsbroker.Connection) error {
			v := must(natsbroker.NewLagView(natsbroker.LagViewConfig{Connection: c, Stream: "S", Consumer: "c"}))
			t.Cleanup(v.Close)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := v.Read(ctx)
			return err
		},
		"CONSUMER.UNPIN.S.c": func(t *testing.T, c natsbroker.Connection) error {
			cfg := pinConfig(c.URLs[0])
			cfg.Connection = c
			s := open(t, cfg, inOrder)
			ack(t, s, receive(t, s, 1)...)
			closeSource(t, s)
			for _, w := range s.events.of(broker.Warning) {
				return w.Err
			}
			return nil
		},
	} {
		t.Run(lacks, func(t *testing.T) {
			t.Parallel()
			may := []string{"$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.S", "$JS.API.STREAM.MSG.GET.S", "$JS.API.STREAM.MSG.DELETE.S",
				"$JS.API.CONSUMER.INFO.S.c", "$JS.API.CONSUMER.MSG.NEXT.S.c", "$JS.API.CONSUMER.UNPIN.S.c", "$JS.ACK.S.c.>"}
			ts := startServer(t, fewMay(server.Permissions{Publish: &server.SubjectPermission{Allow: may,
				Deny: []string{"$JS.API." + lacks}}}))
			a := ts.admin(nats.UserInfo("all", "word"))
			a.stream()
			if _, err := a.js.CreateConsumer(t.Context(), "S", pinConfig("").Durable(true)); err != nil {
				t.Fatal(err)
			}
			a.publish(1, 1)
			c := config(ts.url()).Connection
			c.User, c.Password = "few", broker.NewSecret("word")
			err := ask(t, c)
			if err == nil || !strings.Contains(err.Error(), `Publish to "$JS.API.`+lacks+`"`) || errors.Is(err, broker.ErrRefused) {
				t.Errorf("it says %v", err)
			}
		})
	}
}
