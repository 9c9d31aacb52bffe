package program

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// selfSigned makes a certificate for 127.0.0.1 that is its own authority, for both ends, as cert.pem and key.pem.
func selfSigned(t *testing.T, dir string) (pair tls.Certificate, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0,
			1)}, IsCA: true, BasicConstraintsValid: true,
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
	writeFile(t, dir, "cert.pem", string(certPEM))
	writeFile(t, dir, "key.pem", string(keyPEM))
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pair, pool
}

// A guarded Kafka wants a login over mutual TLS. Its program's configuration lacks the password.
type guarded struct {
	dir, admin, file string
	spoken           []string // what the program said, wherever
}

func guardedKafka(t *testing.T, mechanism string) *guarded {
	t.Helper()
	g := &guarded{dir: t.TempDir(), admin: freePort(t)}
	pair, pool := selfSigned(t, g.dir)
	_, broker := startKafka(t, kfake.SeedTopics(1, "orders", "orders-dead"), kfake.EnableSASL(),
		kfake.Superuser(mechanism, "longshore", canary),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}))
	writeFile(t, g.dir, "password", canary+"\n")
	g.file = fmt.Sprintf(`admin: {listen: "127.0.0.1:%s"}
log: {level: trace}
consumers:
  orders:
    source:
      kafka:
        brokers: ["%s"]
        topics: [orders]
        group: workers
        tls: {ca_file: %[3]s/cert.pem, cert_file: %[3]s/cert.pem, key_file: %[3]s/key.pem}
        sasl: {mechanism: %[4]s, user: longshore, %%s}
    open_timeout: 20s
    retry: {max_attempts: 1}
    dead_letter: {to: orders-dead}
    routes: [{handler: exec, with: {command: ["false"]}}]
`, g.admin, broker, g.dir, mechanism)
	return g
}

// TestKafkaCanary runs the program with each login, rightly and wrongly, and looks for the secrets wherever it speaks (bad inputs
// b04, b06).
func TestKafkaCanary(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			g := guardedKafka(t, mechanism)
			g.fails(t, "password: "+canary+"-wrong", 1, "SASL Authentication Failed")
			g.fails(t, "password: "+canary+", password_file: "+g.dir+"/password", 2,
				"c.yaml:11: consumers.orders.source.kafka.sasl.password_file: is set, and so is")
			g.fails(t, "password_file: "+g.dir+"/none", 2, "c.yaml:11: consumers.orders.source.kafka.sasl.password_file: open ")
			g.works(t, "password_file: "+filepath.Join(g.dir, "password"))
			for _, out := range g.spoken {
				if strings.Contains(out, canary) {
					t.Errorf("the canary is out:\n%s", out)
				}
			}
		})
	}
}

// fails runs with a password that cannot work: it ends soon, without a hot loop, and says why.
func (g *guarded) fails(t *testing.T, password string, code int, why string) {
	t.Helper()
	writeFile(t, g.dir, "c.yaml", fmt.Sprintf(g.file, password))
	run := launch(t, g.dir, "run", "-c", "c.yaml")
	if got := run.code(t); got != code || !strings.Contains(run.stderr.String(), why) {
		t.Errorf("exit code %d, want %d and %q:\n%s", got, code, why, run.stderr.String())
	}
	if n := strings.Count(run.stderr.String(), "\n"); n > 10 || code == 2 && n != 2 {
		t.Errorf("%d lines:\n%s", n, run.stderr.String())
	}
	lag := launch(t, g.dir, "lag", "-c", "c.yaml", "--timeout", "5s")
	if got := lag.code(t); got != code {
		t.Errorf("lag: exit code %d, want %d:\n%s", got, code, lag.stderr.String())
	}
	g.spoken = append(g.spoken, run.stderr.String(), lag.stderr.String(), lag.stdout.String())
}

func (g *guarded) works(t *testing.T, password string) {
	t.Helper()
	writeFile(t, g.dir, "c.yaml", fmt.Sprintf(g.file, password))
	run := launch(t, g.dir, "run", "-c", "c.yaml")
	run.eventually(t, "it has the partition", func() bool { return gauge(g.admin, "claims", "orders") == "1" })
	lag := launch(t, g.dir, "lag", "-c", "c.yaml", "--json")
	if lag.code(t) != 0 || !strings.Contains(lag.stdout.String(), `"lag":0`) {
		t.Errorf("lag: %s%s", lag.stdout.String(), lag.stderr.String())
	}
	at := "http://127.0.0.1:" + g.admin
	for _, page := range []string{"/metrics", "/livez", "/readyz", "/consumers/orders"} {
		g.spoken = append(g.spoken, fetch(at+page))
	}
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	wantJSONLines(t, run.stderr.String())
	g.spoken = append(g.spoken, lag.stdout.String(), lag.stderr.String(), run.stderr.String())
}

// TestKafkaOfTheOtherKind: TLS to a port without, and the reverse, is told with the broker's address, and tried again until
// open_timeout (bad input b05).
func TestKafkaOfTheOtherKind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair, _ := selfSigned(t, dir)
	_, plain := startKafka(t, kfake.SeedTopics(1, "orders"))
	_, secure := startKafka(t, kfake.SeedTopics(1, "orders"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
	for name, c := range map[string]struct{ broker, tls, want string }{
		"TLS to a plaintext port": {plain, ", tls: {}", "broker " + plain},
		"plaintext to a TLS port": {secure, "", "broker " + secure},
		"an unknown authority":    {secure, ", tls: {}", "x509: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFile(t, dir, "c.yaml", fmt.Sprintf("consumers:\n  orders:\n    source: {kafka: {brokers: [%q], topics: [orders], "+
				"group: g%s}}\n    open_timeout: 8s\n    routes: [{handler: log}]\n", c.broker, c.tls))
			run := launch(t, dir, "run", "-c", "c.yaml")
			if code := run.code(t); code != 1 {
				t.Errorf("exit code %d", code)
			}
			log := run.stderr.String()
			events := wantJSONLines(t, log)
			if events["source_down"] < 1 || events["source_down"] > 9 || !strings.Contains(log, c.broker) ||
				!strings.Contains(log, c.want) {
				t.Errorf("%d times, want the address and %q:\n%s", events["source_down"], c.want, log)
			}
		})
	}
}

// TestKafkaRights: Read on topic and group, and Write on the dead letters' topic, are all the rights that are needed. Without
// them the program ends and names what it may not.
func TestKafkaRights(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(1, "orders", "orders-dead", "secret"), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "admin", canary),
		kfake.User("PLAIN", "longshore", canary, readOrders...))
	file := `admin: {listen: "127.0.0.1:%s"}
consumers:
  orders:
    source: {kafka: {brokers: ["%s"], %s, sasl: {mechanism: PLAIN, user: longshore, password: ` + canary + `}}}
    retry: {max_attempts: 1}
    dead_letter: {to: orders-dead}
    routes: [{handler: exec, with: {command: ["false"]}}]
`
	for source, want := range map[string]string{"topics: [secret], group: workers": "topic secret: ",
		"topics: [orders], group: others": "group others: "} {
		dir := t.TempDir()
		writeFile(t, dir, "c.yaml", fmt.Sprintf(file, freePort(t), broker, source))
		bad := launch(t, dir, "run", "-c", "c.yaml")
		if code := bad.code(t); code != 1 || !strings.Contains(bad.stderr.String(), want) ||
			!strings.Contains(strings.ToLower(bad.stderr.String()), "authoriz") {
			t.Errorf("exit code %d, want what it may not: %q\n%s", code, want, bad.stderr.String())
		}
	}
	for _, topics := range []string{"topics: [orders]", `topics_pattern: "order."`} {
		dir, admin := t.TempDir(), freePort(t)
		writeFile(t, dir, "c.yaml", fmt.Sprintf(file, admin, broker, topics+", group: workers"))
		run := launch(t, dir, "run", "-c", "c.yaml")
		run.eventually(t, "it has the partition", func() bool { return gauge(admin, "claims", "orders") == "1" })
		publishAs(t, broker, "admin", canary, "orders")
		run.eventually(t, "it is a dead letter", func() bool { return metric(admin, "dead_lettered_messages_total", "orders", 1) })
		run.signal(t, syscall.SIGTERM)
		if code := run.code(t); code != 0 {
			t.Errorf("exit code %d:\n%s", code, run.stderr.String())
		}
	}
}

// The same as TestPasswordFileIsReadAgain. Kafka keeps who is logged in, so the program has to connect anew to notice.
func TestKafkaPasswordFileIsReadAgain(t *testing.T) {
	t.Parallel()
	cluster, broker := startKafka(t, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "admin", canary), kfake.Superuser("SCRAM-SHA-256", "longshore", canary))
	dir := t.TempDir()
	writeFile(t, dir, "password", canary+"\n")
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`consumers:
  orders:
    source:
      kafka: {brokers: ["%s"], topics: [orders], group: workers,
        sasl: {mechanism: SCRAM-SHA-256, user: longshore, password_file: password}}
    routes: [{handler: log}]
`, broker))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.SASL(plain.Auth{User: "admin", Pass: canary}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	done, err := kadm.NewClient(client).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{
		{User: "longshore", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: canary + "-next"}})
	if err != nil || done.Error() != nil {
		t.Fatal(err, done.Error())
	}
	const refused = "SASL Authentication Failed"
	cluster.ControlKey(kmsg.Fetch.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		if strings.Contains(run.stderr.String(), refused) {
			return nil, nil, false
		}
		cluster.KeepControl() // it may have another connection, on which it is logged in
		return nil, errors.New("the connection is closed"), true
	})
	run.cured(t, refused, dir)
}
