//go:build unix

package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// sharedKafka is one Apache Kafka for all tests of this process.
func sharedKafka(t testing.TB) (brokers []string) {
	t.Helper()
	k := kafkad.Shared(t)
	if !k.Real() {
		t.Skip("NO REAL KAFKA: nothing was tested on one")
	}
	return k.Brokers()
}

func stopSharedKafka() { kafkad.StopShared() }

// TestMovesReal: each of three brokers is killed and started again, so that leaders and the group's coordinator move (f26, f09).
func TestMovesReal(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	k := kafkad.Start(t, kafkad.Config{Nodes: 3, Properties: map[string]string{"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}})
	const partitions, n = 6, 300
	topic := kafkad.Unique("moves")
	if err := k.CreateTopic(t.Context(), topic, partitions, nil); err != nil {
		t.Fatal(err)
	}
	ts := &testSystem{brokers: k.Brokers(), group: topic, topics: []string{topic}, parts: partitions}
	ts.connect(t)
	var want []string
	put := func() {
		var rs []*kgo.Record
		for range n {
			v := fmt.Sprint(len(want))
			want = append(want, v)
			rs = append(rs, &kgo.Record{Topic: topic, Partition: int32(len(want)) % partitions, Value: []byte(v)})
		}
		if err := ts.admin.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	r := startRunner(t, Config{Connection: Connection{Brokers: k.Brokers(), DialTimeout: time.Second, RequestTimeout: 3 * time.Second}, Group: topic, Topics: []string{topic}})
	put()
	long(t, "the first messages came", func() bool { return r.has(want) })
	for node := range 3 {
		k.Kill(node)
		put()
		long(t, fmt.Sprintf("messages came without node %d", node), func() bool { return r.has(want) })
		if err := k.Restart(node); err != nil {
			t.Fatal(err)
		}
	}
	long(t, "all is committed", func() bool { return committedOn(t, ts.admin, topic, topic, partitions) == int64(len(want)) })
	twice := -len(want)
	for _, times := range r.seen() {
		twice += times
	}
	t.Logf("%d messages, %d came again", len(want), twice)
}

// TestOtherKindsReal: TLS, mutual TLS and logins on Apache Kafka, and how it shows that a connection is not of the kind that it wants (b05, b06).
func TestOtherKindsReal(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	certFile, keyFile, _, _ := selfSigned(t)
	both := filepath.Join(t.TempDir(), "both.pem")
	key, err := os.ReadFile(keyFile)
	cert, err2 := os.ReadFile(certFile)
	if err := errors.Join(err, err2, os.WriteFile(both, append(key, cert...), 0o600)); err != nil {
		t.Fatal(err)
	}
	listener := "listener.name.proxied."
	k := kafkad.Start(t, kafkad.Config{Properties: map[string]string{
		"listener.security.protocol.map":     "PLAINTEXT:PLAINTEXT,PROXIED:SASL_SSL,CONTROLLER:PLAINTEXT",
		listener + "ssl.client.auth":         "required",
		listener + "ssl.keystore.type":       "PEM",
		listener + "ssl.keystore.location":   both,
		listener + "ssl.truststore.type":     "PEM",
		listener + "ssl.truststore.location": certFile,
		listener + "sasl.enabled.mechanisms": "PLAIN",
		listener + "plain.sasl.jaas.config":  `org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="canary-7f3";`,
	}})
	plain, guarded := k.Brokers(), []string{k.Proxies()[0].Addr()}
	with := TLS{CAFile: certFile, CertFile: certFile, KeyFile: keyFile}
	login := SASL{Mechanism: "PLAIN", User: "admin", Password: broker.NewSecret("canary-7f3")}
	wrong := SASL{Mechanism: "PLAIN", User: "admin", Password: broker.NewSecret("canary-wrong")}
	for name, tc := range map[string]struct {
		c    Connection
		want []string
	}{
		"TLS to a plaintext port": {Connection{Brokers: plain, TLS: with}, []string{"TLS handshake: ", "does this port speak TLS?"}},
		"plaintext to a TLS port": {Connection{Brokers: guarded, SASL: login}, []string{"ApiVersions request: ", "does this port want TLS?"}},
		"no certificate":          {Connection{Brokers: guarded, TLS: TLS{CAFile: certFile}, SASL: login}, []string{"does this port want a client certificate?"}},
		"unknown authority":       {Connection{Brokers: guarded, TLS: TLS{Enabled: true}, SASL: login}, []string{"TLS handshake: ", "x509: "}},
		"no login":                {Connection{Brokers: guarded, TLS: with}, []string{"Metadata request: ", "does this listener want a login by SASL?"}},
		"a wrong password":        {Connection{Brokers: guarded, TLS: with, SASL: wrong}, []string{"login: ", "SASL Authentication Failed"}},
		"a login too many":        {Connection{Brokers: plain, SASL: login}, []string{"login: ", "does this listener want no login?"}},
	} {
		t.Run(name, func(t *testing.T) { refusesKind(t, tc.c, tc.want...) })
	}
	t.Run("the right kind", func(t *testing.T) {
		topic := kafkad.Unique("kinds")
		if err := k.CreateTopic(t.Context(), topic, 1, nil); err != nil {
			t.Fatal(err)
		}
		c := Connection{Brokers: guarded, TLS: with, SASL: login}
		p, err := NewPublisher(PublisherConfig{Connection: c})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close(context.Background()) }()
		if err := p.Publish(t.Context(), []broker.Outgoing{{Topic: topic, Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
		r := startRunner(t, Config{Connection: c, Group: topic, Topics: []string{topic}})
		eventually(t, "the message came", func() bool { return r.has([]string{"v"}) })
	})
}

// long is eventually for what takes a cluster some time.
func long(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, 3*patience)
		}
	}
}
