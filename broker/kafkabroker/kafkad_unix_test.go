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
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
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
// The configuration names one of them, which is killed, too.
func TestMovesReal(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	k := kafkad.Start(t, kafkad.Config{Nodes: 3, Properties: map[string]string{"broker.session.timeout.ms": "2000",
		"broker.heartbeat.interval.ms": "500"}})
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
	r := startRunner(t, Config{Connection: Connection{Brokers: k.Brokers()[:1], DialTimeout: time.Second,
		RequestTimeout: 3 * time.Second}, Group: topic, Topics: []string{topic}})
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

// TestOtherKindsReal: TLS, mutual TLS and logins on Apache Kafka, and how it shows that a connection is not of the kind that it
// wants (b05, b06).
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
		"listener.security.protocol.map":            "PLAINTEXT:PLAINTEXT,PROXIED:SASL_SSL,CONTROLLER:PLAINTEXT",
		listener + "ssl.client.auth":                "required",
		listener + "ssl.keystore.type":              "PEM",
		listener + "ssl.keystore.location":          both,
		listener + "ssl.truststore.type":            "PEM",
		listener + "ssl.truststore.location":        certFile,
		listener + "sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		listener + "plain.sasl.jaas.config":         plainModule,
		listener + "scram-sha-256.sasl.jaas.config": scramModule,
		listener + "scram-sha-512.sasl.jaas.config": scramModule,
		"connections.max.reauth.ms":                 "3600000", // so that answers to a login have a lifetime
	}})
	if err := k.SetPassword(t.Context(), "sailor", "canary-9e1"); err != nil {
		t.Fatal(err)
	}
	plain, guarded := k.Brokers(), []string{k.Proxies()[0].Addr()}
	with := TLS{CAFile: certFile, CertFile: certFile, KeyFile: keyFile}
	login := SASL{Mechanism: "PLAIN", User: "admin", Password: broker.NewSecret("canary-7f3")}
	wrong := SASL{Mechanism: "PLAIN", User: "admin", Password: broker.NewSecret("canary-wrong")}
	scram := func(mechanism, password string) SASL {
		return SASL{Mechanism: mechanism, User: "sailor", Password: broker.NewSecret(password)}
	}
	for name, tc := range map[string]struct {
		c    Connection
		want []string
	}{
		"TLS to a plaintext port": {Connection{Brokers: plain, TLS: with}, []string{"TLS handshake: ", "does this port speak TLS?"}},
		"plaintext to a TLS port": {Connection{Brokers: guarded, SASL: login},
			[]string{"ApiVersions request: ", "does this port want TLS?"}},
		"no certificate": {Connection{Brokers: guarded, TLS: TLS{CAFile: certFile}, SASL: login},
			[]string{"does this port want a client certificate?"}},
		"unknown authority": {Connection{Brokers: guarded, TLS: TLS{Enabled: true}, SASL: login},
			[]string{"TLS handshake: ", "x509: "}},
		"no login": {Connection{Brokers: guarded, TLS: with},
			[]string{"Metadata request: ", "does this listener want a login by SASL?"}},
		"a wrong password": {Connection{Brokers: guarded, TLS: with, SASL: wrong},
			[]string{"login: ", "SASL Authentication Failed"}},
		"a wrong password, SCRAM": {Connection{Brokers: guarded, TLS: with, SASL: scram("SCRAM-SHA-512", "canary-wrong")},
			[]string{"login: ", "SASL Authentication Failed"}},
		"a login too many": {Connection{Brokers: plain, SASL: login}, []string{"login: ", "does this listener want no login?"}},
	} {
		t.Run(name, func(t *testing.T) { refusesKind(t, tc.c, tc.want...) })
	}
	for name, login := range map[string]SASL{"PLAIN": login, "SCRAM-SHA-256": scram("SCRAM-SHA-256", "canary-9e1"),
		"SCRAM-SHA-512": scram("SCRAM-SHA-512", "canary-9e1")} {
		t.Run(name, func(t *testing.T) { testLogin(t, k, Connection{Brokers: guarded, TLS: with, SASL: login}) })
	}
}

const plainModule = `org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="canary-7f3";`

const scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule required;"

// testLogin publishes and consumes a message.
func testLogin(t *testing.T, k *kafkad.Cluster, c Connection) {
	topic := kafkad.Unique("kinds")
	if err := k.CreateTopic(t.Context(), topic, 1, nil); err != nil {
		t.Fatal(err)
	}
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
}

// TestRackReal: who has a rack fetches from the replica there, and from the leader while that replica is down (KIP-392). It is
// the follower's death, and not the leader's, that the fetches feel.
func TestRackReal(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	k := kafkad.Start(t, kafkad.Config{Nodes: 3, Properties: map[string]string{
		"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}})
	topic := kafkad.Unique("racks")
	if err := k.CreateTopic(t.Context(), topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	replicas, err := k.Replicas(t.Context(), topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	near := replicas[1]
	ts := &testSystem{brokers: k.Brokers(), group: topic, topics: []string{topic}, parts: 1}
	ts.connect(t)
	r := startRunner(t, Config{Connection: Connection{Brokers: k.Brokers(), DialTimeout: time.Second,
		RequestTimeout: 3 * time.Second}, Group: topic, Topics: []string{topic}, Rack: k.Rack(near)})
	fetchesFrom := func(node int) func() bool {
		return func() bool {
			r.s.h.mu.Lock()
			defer r.s.h.mu.Unlock()
			for _, p := range r.s.h.roster.parts {
				return p.replica == int32(node)+1 // ids begin at 1
			}
			return false
		}
	}
	var want []string
	for i, step := range []struct {
		what string
		do   func() error
		from int
	}{
		{"at first", func() error { return nil }, near},
		{"without the follower", func() error { k.Kill(near); return nil }, -2},
		{"with the follower again", func() error { return k.Restart(near) }, near},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		want = append(want, ts.put(t, topic, 100*i, 100)...)
		long(t, "the messages came "+step.what, func() bool { return r.has(want) })
		long(t, "fetches go the right way "+step.what, fetchesFrom(step.from))
	}
	long(t, "all is committed", func() bool { return committedOn(t, ts.admin, topic, topic, 1) == int64(len(want)) })
	if n := len(r.seen()); n != len(want) {
		t.Errorf("%d messages were seen, want %d", n, len(want))
	}
}

// TestTakeoverFromJava: a running group of Java members is taken over member by member, and handed back, with nothing lost; with
// each of the assignors that we have in common.
func TestTakeoverFromJava(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	k := kafkad.Shared(t)
	for balancer, assignor := range map[string]string{"range": "RangeAssignor", "roundrobin": "RoundRobinAssignor",
		"sticky": "CooperativeStickyAssignor"} {
		t.Run(balancer, func(t *testing.T) { testTakeoverFromJava(t, k, balancer, assignor) })
	}
}

func testTakeoverFromJava(t *testing.T, k *kafkad.Cluster, balancer, assignor string) {
	ts := realSystem(t, brokertest.Setup{Topics: 1, Partitions: 4}, balancer)
	var theirs []*kafkad.JavaMember
	var ours []*runner
	java := func() {
		m, err := k.StartJavaMember(ts.topics[0], ts.group, assignor, map[string]string{"session.timeout.ms": "3000"})
		if errors.Is(err, kafkad.ErrNoTool) && os.Getenv("LONGSHORE_REAL") == "" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if m.Kill(); t.Failed() {
				t.Log(m.Log())
			}
		})
		theirs = append(theirs, m)
	}
	longshore := func() { ours = append(ours, startRunner(t, ts.config(ts.net.link()))) }
	stop := func(i int) func() {
		return func() {
			if err := theirs[i].Stop(patience); err != nil {
				t.Error(err)
			}
		}
	}
	seen := func() map[string]int {
		all := make(map[string]int)
		for _, m := range theirs {
			for _, v := range m.Seen() {
				all[v]++
			}
		}
		for _, r := range ours {
			for v, n := range r.seen() {
				all[v] += n
			}
		}
		return all
	}
	var want []string
	for _, step := range []struct {
		what    string
		do      func()
		members int
	}{
		{"two of theirs", func() { java(); java() }, 2},
		{"one of ours beside two", longshore, 3},
		{"one each", stop(0), 2},
		{"two of ours beside one", longshore, 3},
		{"ours alone", stop(1), 2},
		{"one of theirs again", java, 3},
		{"theirs alone", func() { ours[0].close(); ours[1].close() }, 1},
	} {
		want = append(want, ts.put(t, ts.topics[0], len(want), 40)...)
		step.do()
		long(t, step.what+": the group has its members", func() bool { return ts.members(t) == step.members })
		want = append(want, ts.put(t, ts.topics[0], len(want), 40)...)
		long(t, step.what+": all were seen", func() bool { return len(seen()) == len(want) })
	}
	stop(2)()
	if n := committedOn(t, ts.admin, ts.group, ts.topics[0], ts.parts); n != int64(len(want)) {
		t.Errorf("%d of %d messages are committed", n, len(want))
	}
	twice := -len(want)
	for _, n := range seen() {
		twice += n
	}
	t.Logf("%d messages, %d came again", len(want), twice)
}

// members is how many members the group has, while it is stable.
func (ts *testSystem) members(t testing.TB) int {
	t.Helper()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{ts.group}
	g := ask(t, ts.admin, req, func(*kmsg.DescribeGroupsResponse) int16 { return 0 }).Groups[0]
	if g.ErrorCode != 0 || g.State != "Stable" { // nobody has joined yet, or it is being divided
		return -1
	}
	return len(g.Members)
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

// TestOutageReal: the broker is killed and comes back when the member's session is long over. What was finished meanwhile is not
// done again.
func TestOutageReal(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	for balancer := range map[string]bool{"sticky": true, "range": true} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			k := kafkad.Start(t, kafkad.Config{Properties: map[string]string{"group.min.session.timeout.ms": "1000"}})
			topic := kafkad.Unique("outage")
			if err := k.CreateTopic(t.Context(), topic, 1, nil); err != nil {
				t.Fatal(err)
			}
			ts := &testSystem{balancer: balancer, brokers: k.Brokers(), group: topic, topics: []string{topic}, parts: 1,
				short: 3 * time.Second, lease: 3 * time.Second,
				floors: make(map[string][]int64)}
			ts.connect(t)
			cfg := ts.config(ts.net.link())
			cfg.plan = nil
			o := startOutage(t, ts, cfg, func() { k.Kill(0) })
			if err := k.Restart(0); err != nil {
				t.Fatal(err)
			}
			o.goesOn(t, false)
		})
	}
}
