package kafkabroker

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/integration/daemon"
)

// silent is an address that takes connections and never says a word.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// closedPort is an address where nobody listens, and no test beside this one will.
func closedPort(t *testing.T) string {
	t.Helper()
	port, err := daemon.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// TestFailedStart: whatever is set up otherwise here than there, the first thing that is told names it, long before a try is
// given up; and so does the error of an Open whose time is over in the middle of another try. That one said "i/o timeout",
// whatever was wrong.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	_, _, pair, _ := selfSigned(t)
	plain := startCluster(t, kfake.SeedTopics(1, "t")).ListenAddrs()
	secure := startCluster(t, kfake.SeedTopics(1, "t"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}})).ListenAddrs()
	guarded := startCluster(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "right"),
		kfake.Superuser("SCRAM-SHA-256", "u", "right")).ListenAddrs()
	login := func(mechanism, password string) SASL {
		return SASL{Mechanism: mechanism, User: "u", Password: broker.NewSecret(password)}
	}
	for name, tc := range map[string]struct {
		c    Connection
		want []string
	}{
		"nobody listens": {Connection{Brokers: []string{closedPort(t)}}, []string{"connecting: ", "refused"}},
		"no such host": {Connection{Brokers: []string{"longshore.invalid:9092"}},
			[]string{"longshore.invalid:9092: connecting: "}},
		"silence": {Connection{Brokers: []string{silent(t)}}, []string{"ApiVersions request: no answer"}},
		"silence, another there": {Connection{Brokers: []string{closedPort(t), silent(t)}},
			[]string{"refused", "ApiVersions request: no answer"}},
		"TLS on a plain port": {Connection{Brokers: plain, TLS: TLS{Enabled: true}},
			[]string{"TLS handshake: ", "does this port speak TLS?"}},
		"plain on a TLS port":  {Connection{Brokers: secure}, []string{"does this port want TLS?"}},
		"an unknown authority": {Connection{Brokers: secure, TLS: TLS{Enabled: true}}, []string{"TLS handshake: ", "x509: "}},
		"SASL on a plain port": {Connection{Brokers: plain, SASL: login("PLAIN", "right")},
			[]string{"login: ", "does this listener want no login?"}},
		"SCRAM on a plain port": {Connection{Brokers: plain, SASL: login("SCRAM-SHA-256", "right")},
			[]string{"login: ", "does this listener want no login?"}},
		"no SASL where it is": {Connection{Brokers: guarded}, []string{"does this listener want a login by SASL?"}},
		"a wrong password": {Connection{Brokers: guarded, SASL: login("PLAIN", "wrong")},
			[]string{"login: ", "SASL Authentication Failed"}},
		"a wrong SCRAM password": {Connection{Brokers: guarded, SASL: login("SCRAM-SHA-256", "wrong")},
			[]string{"login: ", "SASL Authentication Failed"}},
		"another mechanism": {Connection{Brokers: guarded, SASL: login("SCRAM-SHA-512", "right")}, []string{"login: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.c.DialTimeout = time.Hour // whoever waits for a try to be given up waits too long
			s, err := NewSource(Config{Connection: tc.c, Group: "g", Topics: []string{"t"}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close(context.Background()) }()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var first error
			_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(e broker.Event) {
				if first == nil {
					first = e.Err
					time.AfterFunc(100*time.Millisecond, cancel) // in the middle of a later try
				}
			}})
			for what, e := range map[string]error{"first told": first, "error of Open": err} {
				if e == nil || !strings.Contains(e.Error(), tc.c.Brokers[0]) {
					t.Errorf("%s: %v, want the broker's address in it", what, e)
					continue
				}
				for _, text := range tc.want {
					if !strings.Contains(e.Error(), text) {
						t.Errorf("%s: %q is not in: %v", what, text, e)
					}
				}
			}
			if ctx.Err() != nil && err != nil && !errors.Is(err, ctx.Err()) && !refused(err) {
				t.Errorf("Open: %v, want that its time was over, too", err)
			}
		})
	}
}

// TestGroupNotReached: a start whose topics are found and whose group is not says what is wrong with the group.
func TestGroupNotReached(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.SeedTopics(1, "t"))
	s := &spoiler{key: keyFindCoordinator}
	src, err := NewSource(Config{Connection: Connection{Brokers: c.ListenAddrs(), dial: s.dial}, Group: "g", Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = src.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(e broker.Event) {
		if e.Kind == broker.Down {
			cancel()
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "coordinator") || !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
}

// A topic was made anew, and its partition is taken away before it has begun anew here. When it comes back it begins as one that
// was made anew, unless somebody else has begun it meanwhile.
func TestResetIsRemembered(t *testing.T) {
	for name, tc := range map[string]struct {
		committed int64
		want      error
	}{
		"nobody has begun it":     {-1, errRecreated},
		"somebody else has begun": {5, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoster()
			id := partitionID{"orders", 0}
			r.begin(id, errRecreated)
			first := r.beginning[id]
			if !r.cancel(id) || !first.unwanted.Load() {
				t.Fatal("it was not taken away")
			}
			r.begin(id, nil)
			r.cancel(id) // and again, before it was looked up
			r.begin(id, nil)
			b := r.beginning[id]
			b.read(position{offset: tc.committed})
			if known := b.known(); known != (tc.want == nil) || !errors.Is(b.reset, tc.want) {
				t.Errorf("it begins where it is committed: %v; anew because %v, want %v", known, b.reset, tc.want)
			}
			r.add(b, &part{partitionID: id})
			r.take(endingClaim{p: r.parts[id]})
			r.begin(id, nil)
			if again := r.beginning[id]; again.before != nil {
				t.Errorf("it is remembered after it has begun: %v", again.before)
			}
		})
	}
}

// A partition drains while its topic is made anew. It is lost, and begins anew when the group assigns it, though nothing is
// committed of the new topic.
func TestLostOfOldTopicBeginsAnew(t *testing.T) {
	s, _, p := bareSource(t)
	s.h.changed(change{kind: revoking, parts: []partitionID{p.partitionID}})
	s.h.follow(time.Now())
	s.h.changed(change{kind: lost, parts: []partitionID{p.partitionID}, err: errMadeAgain})
	s.h.changed(change{kind: assigned, parts: []partitionID{p.partitionID}})
	bs := s.h.follow(time.Now()).lookUp
	if len(bs) != 1 {
		t.Fatalf("%d begin", len(bs))
	}
	bs[0].read(position{offset: -1})
	if known := bs[0].known(); known || !errors.Is(bs[0].reset, errRecreated) {
		t.Errorf("it begins where it is committed: %v; anew because %v", known, bs[0].reset)
	}
}

// TestDispute: what is committed is of another topic than ours. Ours is believed to be the new one only by a look that began
// after that was read.
func TestDispute(t *testing.T) {
	was, is := topicID{1}, topicID{2}
	committed := func(id topicID) position {
		p := progress{base: 7, log: id.log()}
		return position{offset: 7, metadata: p.encode(metadataLimit)}
	}
	// A step reads what is committed by what a look told of the topic; begun is how many looks have begun by now.
	type step struct {
		at       position
		id       topicID
		look     int
		begun    int
		disputed bool
	}
	for name, tc := range map[string]struct {
		steps []step
		reset error
	}{
		"ours":                     {[]step{{committed(is), is, 1, 1, false}}, nil},
		"nothing is committed":     {[]step{{position{offset: -1}, is, 1, 1, false}}, nil},
		"it does not say of which": {[]step{{position{offset: 7}, is, 1, 1, false}}, nil},
		"the broker has no ids":    {[]step{{committed(was), topicID{}, 1, 1, false}}, nil},
		"of the old one":           {[]step{{committed(was), is, 1, 1, true}, {committed(was), is, 2, 2, false}}, errRecreated},
		"of the new one":           {[]step{{committed(is), was, 1, 1, true}, {committed(is), is, 2, 2, false}}, nil},
		"by a look that was under way": {
			[]step{{committed(is), was, 1, 2, true}, {committed(is), was, 2, 2, true}, {committed(is), is, 3, 3, false}}, nil},
		"by no new look": {
			[]step{{committed(is), was, 1, 1, true}, {committed(is), was, 1, 2, true}, {committed(is), is, 2, 2, false}}, nil},
		"made anew once more": {[]step{{committed(is), was, 1, 1, true}, {committed(topicID{3}), is, 2, 2, true},
			{committed(topicID{3}), topicID{3}, 3, 3, false}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newStart(partitionID{"orders", 0}, nil)
			for i, s := range tc.steps {
				b.place = place{leader: 1, id: s.id, look: s.look}
				b.read(s.at)
				if is := b.disputed(s.begun); is != s.disputed {
					t.Fatalf("step %d: disputed: %v", i, is)
				}
			}
			if known := b.known(); known != (tc.reset == nil && b.at.offset >= 0) || !errors.Is(b.reset, tc.reset) {
				t.Errorf("it begins where it is committed: %v; anew because %v, want %v", known, b.reset, tc.reset)
			}
		})
	}
}
